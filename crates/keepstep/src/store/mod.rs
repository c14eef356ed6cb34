//! A store: one directory that many processes record to at once. The one place that knows all rooms.

mod episode;
mod group;
mod name;
mod note;
mod place;
mod plan;
mod planned;
mod run;
mod stream;
mod tending;
mod view;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::card;
use keepstep_format::commit::What;
use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

pub use episode::endings::{MARKED_AT_ONCE, Reaped, Search};
pub use episode::options::{NewPolicy, PolicyName};
pub use episode::options::{Opening, Resume, WhenBusy};
pub use episode::{Ending, Episode, Known, SaidTurn, Turn};
pub use group::{Group, GroupView, Member, SealedGroups};
pub use name::EpisodeName;
pub use note::orphans::OrphanNote;
pub use place::address::refuse_address;
pub use plan::PlanOptions;
pub use plan::progress::{GivenUp, Progress};
pub use plan::remaining::{Job, Jobs, Next, Remaining, RemainingOptions};
pub use run::{Generation, Run, RunInfo, RunOptions};
pub use stream::Stream;
pub use stream::freeze::{Conflict, StreamView};
pub use view::events::{RunEvent, RunFollow};
pub use view::following::{StepFollow, StepNews};
pub use view::listing::Listed;
pub use view::query::EpisodeFilter;
pub use view::{Began, EpisodeEvents, View};

use place::identity::Identity;
use place::level::Reached;

use crate::disk::{self, Cards, Directory, Disk, Files, RealDisk};
use crate::error::{Doing, Error, Result};
use crate::options::{Level, Options};
use crate::own::{self, ClaimBatcher, Home, Leases, Mail, Mailbox, NoticePoster};
use crate::process::Process;
use crate::read::{Catalog, Outcomes};
use crate::recover::Recovery;
use crate::segment::Storage;
use crate::write::{
    self, Beat, LookUp, News, OnClose, Recorder, Start, Subject, SubjectKey, SubjectName, Waker, Wakers,
    Writer, WriterStats,
};

/// What is said of a store whose `keepstep.json` is damaged.
const RECOVERED: &str = "keepstep.json is damaged; the store's id was read from its logs. `keepstep verify --heal` writes it again";

/// A store. Cheap to clone; the last clone to go closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// A store that this does not keep open: for whoever closes all that is open at the end.
#[derive(Debug, Clone)]
pub struct WeakStore(Weak<Inner>);

impl WeakStore {
    /// The store, if somebody still has it.
    pub fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|inner| Store { inner })
    }

    /// True if nobody has it any more.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

struct Inner {
    process: Process,
    disk: Arc<dyn Disk>,
    id: Id,
    key: ContentKey,
    level: Level,
    /// The most that this storage gives.
    strongest: Level,
    /// What whoever opens it should be told.
    warnings: Vec<String>,
    options: Options,
    /// Made when the first episode is recorded, since reading needs none; and again if others have closed its log.
    writer: Mutex<Option<Arc<Writer>>>,
    claim_batcher: ClaimBatcher,
    leases: Leases,
    open_episodes: episode::open_episodes::OpenEpisodes,
    cards: Arc<Storage>,
    /// What was seen of the logs when episodes were opened: looked at again, not read again.
    looking: Mutex<Catalog>,
    /// The same, with what no sync is known to have covered: for those who have told the writers, and read what is there.
    looking_at_all: Mutex<Catalog>,
    streams: stream::OpenStreams,
    notes: note::NotePutters,
    /// Knows what was pruned.
    tended: Arc<Storage>,
    /// How attempts ended, as far as somebody asked what remains of a plan.
    outcomes: Mutex<Outcomes>,
    plan_caches: planned::PlanCaches,
    notices: NoticePoster,
    wakers: Arc<Wakers>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Store {}>", self.inner.id)
    }
}

impl Store {
    /// Opens a directory, making it a store if it is empty.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        let disk = RealDisk::create(path).doing("open", &shown)?;
        Self::on_files(Arc::new(disk), options)
    }

    /// Opens a store that exists; nothing is created.
    pub fn open_existing(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        let not_there = |why: &str| Error::NotAStore { path: shown.clone(), why: why.to_owned() };
        let disk = RealDisk::open(path).map_err(|error| not_there(&error.to_string()))?;
        let disk = Directory::over(Arc::new(disk));
        if !disk.exists(disk::STORE_FILE).doing("look into", &shown)? {
            let is_gone = place::identity::has_recordings(&*disk)?;
            return Err(if is_gone { place::identity::gone() } else { not_there("it has no keepstep.json") });
        }
        Self::on_disk(disk, options)
    }

    /// Opens a store in a directory of any file system.
    pub fn on_files(files: Arc<dyn Files>, options: Options) -> Result<Self> {
        // The one place where a test can put a file system that lies under a store.
        #[cfg(feature = "simulate")]
        let files = disk::sim::lies::lying(files, options.broken);
        Self::on_disk(Directory::over(files), options)
    }

    /// Opens a store on any storage.
    pub fn on_disk(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let Reached { level, strongest, short_of } = place::level::reached(&*disk, options.level)?;
        let Identity { id, is_recovered } = place::identity::find_or_make(&*disk)?;
        let mut warnings: Vec<String> = short_of.into_iter().collect();
        if is_recovered {
            warnings.push(RECOVERED.to_owned());
        }
        let key = ContentKey::new(&id.0);
        let cards = Arc::new(Storage::new(Arc::clone(&disk), id));
        let inner = Inner {
            process: Process::this(),
            claim_batcher: ClaimBatcher::new(Arc::clone(&disk), id, key.clone(), &options),
            leases: Leases::new(Arc::clone(&disk), id, options.lease),
            open_episodes: episode::open_episodes::OpenEpisodes::default(),
            looking: Mutex::new(Catalog::unread(Arc::clone(&cards), view::reading::recovery(&disk, id))),
            looking_at_all: Mutex::new(Catalog::unread(Arc::clone(&cards), Arc::new(Recovery::dirty()))),
            outcomes: Mutex::new(Outcomes::new(Catalog::unread(
                Arc::clone(&cards),
                view::reading::recovery(&disk, id),
            ))),
            plan_caches: planned::PlanCaches::default(),
            notices: NoticePoster::default(),
            cards,
            writer: Mutex::default(),
            streams: stream::OpenStreams::default(),
            notes: note::NotePutters::default(),
            wakers: Arc::default(),
            tended: Arc::new(Storage::new(Arc::clone(&disk), id)),
            disk,
            id,
            key,
            level,
            strongest,
            warnings,
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The store's id.
    pub fn id(&self) -> Id {
        self.inner.id
    }

    /// What its steps survive unless they ask for something else.
    pub fn level(&self) -> Level {
        self.inner.level
    }

    /// What whoever opened it should be told: that it reaches less than usual, or that `keepstep.json` is damaged.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Writes `keepstep.json` of a store again if it is gone or damaged, under the id that its logs were written under.
    /// True if it did; false if there was nothing to do.
    pub fn heal_identity(path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        place::identity::heal(&*Directory::over(Arc::new(RealDisk::open(path).doing("open", &shown)?)))
    }

    /// What this process has written, if it has.
    pub fn writer_stats(&self) -> WriterStats {
        self.current_writer().map(|writer| writer.stats()).unwrap_or_default()
    }

    /// Writes all that waits, seals the log, and stops recording. Also done when the last clone goes.
    ///
    /// Episodes that are still open end as `aborted`.
    pub fn close(&self) {
        // A forked child has nothing to close: the log is its parent's.
        if self.check_process().is_err() {
            return;
        }
        for recorder in self.inner.open_episodes.close() {
            recorder.close();
            episode::abort(&recorder, "the store was closed");
        }
        self.inner.close_writer();
    }

    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inner))
    }

    /// An error if the store was closed: nothing is recorded or claimed any more.
    fn check_open(&self) -> Result<()> {
        if self.inner.open_episodes.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Rings a waker whenever something that this process records was acknowledged, for as long as the waker is kept.
    pub fn add_waker(&self, waker: &Arc<dyn Waker>) {
        if self.check_process().is_ok() {
            self.inner.wakers.add(waker);
        }
    }

    /// An error in a process that was forked from the one that opened the store: nothing that it inherited can be used
    /// there. It opens the store again.
    pub fn check_process(&self) -> Result<()> {
        self.inner.process.check()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.disk
    }

    pub(crate) fn key(&self) -> &ContentKey {
        &self.inner.key
    }

    fn options(&self) -> &Options {
        &self.inner.options
    }

    fn claim_batcher(&self) -> &ClaimBatcher {
        &self.inner.claim_batcher
    }

    fn leases(&self) -> &Leases {
        &self.inner.leases
    }

    fn open_episodes(&self) -> &episode::open_episodes::OpenEpisodes {
        &self.inner.open_episodes
    }

    /// Where small files are read from.
    fn cards(&self) -> &Arc<Storage> {
        &self.inner.cards
    }

    /// The logs that were looked at before.
    fn looking(&self) -> MutexGuard<'_, Catalog> {
        self.inner.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that stands in the logs that were looked at before, synced or not. Logs only grow, so what was seen of one is
    /// right for as long as it has the same length, whoever lives.
    fn looking_at_all(&self) -> MutexGuard<'_, Catalog> {
        self.inner.looking_at_all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.inner.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notices(&self) -> &NoticePoster {
        &self.inner.notices
    }

    fn plan_caches(&self) -> &planned::PlanCaches {
        &self.inner.plan_caches
    }

    /// Who this process is to others, if it has recorded or claimed anything.
    fn writer_id(&self) -> Option<Id> {
        self.current_writer().map(|writer| writer.id())
    }

    /// What this process records with, if it does.
    fn current_writer(&self) -> Option<Arc<Writer>> {
        self.check_process().ok()?;
        lock(&self.inner.writer).clone()
    }

    fn writer(&self) -> Result<Arc<Writer>> {
        self.check_process()?;
        let mut current = lock(&self.inner.writer);
        if let Some(writer) = current.as_ref().filter(|writer| !writer.is_closed_by_others()) {
            return Ok(Arc::clone(writer));
        }
        self.check_open()?;
        let writer = Arc::new(self.start_writer()?);
        *current = Some(Arc::clone(&writer));
        Ok(writer)
    }

    fn start_writer(&self) -> Result<Writer> {
        let inner = &self.inner;
        let (mut home, lock) = Home::create(&inner.disk, &inner.id, &inner.key)?;
        let writer = home.writer;
        let mut mailbox = Mailbox::new(Arc::clone(&inner.cards), writer);
        let look_up: LookUp = Box::new(move || {
            let news = |mail| match mail {
                Mail::Claimed { id, attempt } => News::Claimed { id, attempt },
                Mail::Closed => News::Closed,
            };
            Ok(mailbox.look()?.into_iter().map(news).collect())
        });
        let lock = Some(lock as Arc<dyn Send + Sync>);
        let on_close = Some(leave_scan_card(&inner.disk, inner.id, writer, &inner.key));
        let identity = write::Identity {
            disk: Arc::clone(&inner.disk),
            store: inner.id,
            writer,
            strongest: inner.strongest,
            lock,
            on_close,
        };
        home.beat();
        let beat: Beat = Box::new(move || home.beat());
        Writer::start(identity, inner.key.clone(), &inner.options, look_up, beat, Arc::clone(&inner.wakers))
    }

    /// A recorder for one attempt, which begins with these fields.
    fn recorder(
        &self,
        writer: &Arc<Writer>,
        id: Id,
        attempt: u32,
        name: SubjectName,
        begin: Vec<(u8, Value)>,
        start: Start,
    ) -> Result<Recorder> {
        let writer = Arc::clone(writer);
        self.inner.open_episodes.begin(&id)?;
        let subject = Subject::new(SubjectKey { what: What::Attempt, id, attempt }, name).starting(start);
        Recorder::begin(writer, subject, Arc::clone(&self.inner.disk), self.inner.level, begin)
    }
}

impl Inner {
    fn close_writer(&self) {
        // One that is just being made is closed too.
        let writer = lock(&self.writer);
        if let Some(writer) = &*writer {
            writer.close();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Receipts that somebody keeps know the writer too: it is closed all the same.
        if self.process.is_this() {
            self.close_writer();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A writer that closes in good order says how long its last segment is, so that a later cut is noticed.
fn leave_scan_card(disk: &Arc<dyn Disk>, store: Id, writer: Id, key: &ContentKey) -> OnClose {
    let (disk, key) = (Arc::clone(disk), key.clone());
    Box::new(move |number, bytes| {
        let path = format!("scans/{writer}.{number}");
        let body = own::encode_fields(
            &key,
            &[
                (fields::TIME, Value::Int(disk.now_us())),
                (fields::WRITER, Value::bytes(writer.0)),
                (fields::SEGMENT, Value::Int(number as i64)),
                (fields::FILE_BYTES, Value::Int(bytes as i64)),
            ],
        );
        let card = card::Card::encode(&store, &path, card::kind::SCAN, &body);
        // The segment is whole without it.
        let _ = disk.put(&path, &card);
    })
}
