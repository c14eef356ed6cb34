//! A store: one directory that many processes record to at once. Only this module knows all the others.

mod episode;
mod group;
mod name;
mod note;
mod own_log;
mod place;
mod plan;
mod planned;
mod run;
mod stream;
mod tending;
mod view;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;

pub use episode::endings::{MARKED_AT_ONCE, Marked, Reaped, Search};
pub use episode::options::{NewPolicy, PolicyName};
pub use episode::options::{Opening, Resume, WhenBusy};
pub use episode::{CalledFunction, Ending, Episode, Known, SaidTurn, Turn};
pub use group::{Group, GroupView, Member, SealedGroups};
pub use name::EpisodeName;
pub use note::orphans::OrphanNote;
pub use place::address::refuse_address;
pub use plan::PlanOptions;
pub use plan::progress::{GivenUp, Progress};
pub use plan::remaining::{Job, Jobs, Next, Remaining, RemainingOptions};
pub use run::{Generation, Run, RunInfo, RunOptions};
pub use stream::Stream;
pub use stream::reading::{StreamNews, StreamReader};
pub use stream::view::{Conflict, StreamView};
pub use view::counting::RecordFollow;
pub use view::events::{RunEvent, RunFollow};
pub use view::following::{StepFollow, StepNews};
pub use view::listing::Listed;
pub use view::own_records::{AttemptFollow, RecordNews};
pub use view::query::EpisodeFilter;
pub use view::{Began, EpisodeEvents, View};

use own_log::OwnLog;
use place::Place;

use crate::disk::{self, Cards, Directory, Disk, Files, RealDisk};
use crate::error::{Doing, Error, Result};
use crate::options::{Level, Options};
use crate::own::{ClaimBatcher, Leases, NoticePoster};
use crate::process::Process;
use crate::read::{Catalog, Outcomes};
use crate::recover::Recovery;
use crate::segment::Storage;
use crate::write::{Recorder, Start, Subject, SubjectKey, SubjectName, Waker, Writer, WriterStats};

/// A store. Cheap to clone. It closes when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// A reference that does not keep the store open, for example to close all open stores at exit.
#[derive(Debug, Clone)]
pub struct WeakStore(Weak<Inner>);

impl WeakStore {
    /// The store, if a clone of it still exists.
    pub fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|inner| Store { inner })
    }

    /// True if all clones of the store were dropped.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

struct Inner {
    process: Process,
    place: Place,
    ownership: Ownership,
    seen: Seen,
    own_log: OwnLog,
    streams: stream::OpenStreams,
    notes: note::NotePutters,
}

/// What is needed to own episodes, and to tell other processes so.
struct Ownership {
    claim_batcher: ClaimBatcher,
    leases: Leases,
    open_episodes: episode::open_episodes::OpenEpisodes,
    notices: NoticePoster,
}

/// What this process has read of all logs. A later look reads only what is new.
struct Seen {
    /// What is known to be synced, read when episodes were opened.
    synced: Mutex<Catalog>,
    /// The same, plus records that may not be synced: for callers that have posted to the writers first.
    all: Mutex<Catalog>,
    /// How attempts ended, read when a caller asked what remains of a plan.
    outcomes: Mutex<Outcomes>,
    plans: planned::PlanCaches,
}

impl Ownership {
    fn of(place: &Place) -> Self {
        let Place { disk, id, key, options, .. } = place;
        Self {
            claim_batcher: ClaimBatcher::new(Arc::clone(disk), *id, key.clone(), options),
            leases: Leases::new(Arc::clone(disk), *id, options.lease),
            open_episodes: episode::open_episodes::OpenEpisodes::default(),
            notices: NoticePoster::default(),
        }
    }
}

impl Seen {
    fn nothing(place: &Place) -> Self {
        let synced = || view::reading::recovery(&place.disk, place.id);
        let unread = |scan| Catalog::unread(Arc::clone(&place.cards), scan);
        Self {
            synced: Mutex::new(unread(synced())),
            all: Mutex::new(unread(Arc::new(Recovery::dirty()))),
            outcomes: Mutex::new(Outcomes::new(unread(synced()))),
            plans: planned::PlanCaches::default(),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Store {}>", self.inner.place.id)
    }
}

/// The error for a path where no directory can be.
fn no_directory(path: &Path) -> Error {
    let why = match path.exists() {
        true => "it is a file: give a directory",
        false => "part of the path is a file: give a directory",
    };
    Error::NotAStore { path: path.display().to_string(), why: why.to_owned() }
}

impl Store {
    /// Opens a directory. If it is empty, it becomes a store.
    ///
    /// ```
    /// use keepstep::{Level, Options, Store, Value};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-open-{}", std::process::id()));
    /// let store = Store::open(&dir, Options::default().level(Level::Kill))?;
    /// let run = store.run("shop-agent", Value::Null)?;
    /// assert_eq!((store.level(), run.name()), (Level::Kill, "shop-agent"));
    /// # drop((run, store));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        let disk = RealDisk::create(path).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => no_directory(path),
            _ => Error::io("open", &*shown, error),
        })?;
        Self::on_files(Arc::new(disk), options)
    }

    /// Opens a store that exists; nothing is created.
    pub fn open_existing(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        let not_there = |why: &str| Error::NotAStore { path: shown.clone(), why: why.to_owned() };
        let disk = RealDisk::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory => no_directory(path),
            _ => not_there(&error.to_string()),
        })?;
        let disk = Directory::over(Arc::new(disk));
        if !disk.exists(disk::STORE_FILE).doing("look into", &shown)? {
            let is_gone = place::identity::has_recordings(&*disk)?;
            return Err(if is_gone { place::identity::gone() } else { not_there("it has no keepstep.json") });
        }
        Self::on_disk(disk, options)
    }

    /// Opens a store in a directory of any file system.
    pub fn on_files(files: Arc<dyn Files>, options: Options) -> Result<Self> {
        // The only place where a test can put a faulty file system under a store.
        #[cfg(feature = "simulate")]
        let files = disk::sim::lies::lying(files, options.broken);
        Self::on_disk(Directory::over(files), options)
    }

    /// Opens a store on any storage.
    pub fn on_disk(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let place = Place::open(disk, options)?;
        let inner = Inner {
            process: Process::this(),
            ownership: Ownership::of(&place),
            seen: Seen::nothing(&place),
            own_log: OwnLog::default(),
            streams: stream::OpenStreams::default(),
            notes: note::NotePutters::default(),
            place,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The store's id.
    pub fn id(&self) -> Id {
        self.inner.place.id
    }

    /// The level of its steps, unless a step asks for another one.
    pub fn level(&self) -> Level {
        self.inner.place.level
    }

    /// The level that a synced record reaches if `level` is asked for: at least the store's own. An error if this
    /// storage cannot reach it.
    pub fn reach(&self, level: Level) -> Result<Level> {
        let reached = place::level::reached(&*self.inner.place.disk, Some(level))?;
        Ok(reached.level.max(self.level()))
    }

    /// Warnings for the caller that opened it: that it reaches less than `power`, or that `keepstep.json` is damaged.
    pub fn warnings(&self) -> &[String] {
        &self.inner.place.warnings
    }

    /// Writes `keepstep.json` again if it is missing or damaged, with the id that the logs were written under. True
    /// if it did; false if the file is whole.
    pub fn heal_identity(path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        refuse_address(path)?;
        let shown = path.display().to_string();
        place::identity::heal(&*Directory::over(Arc::new(RealDisk::open(path).doing("open", &shown)?)))
    }

    /// What this process has written; zeros if it has not recorded.
    pub fn writer_stats(&self) -> WriterStats {
        self.current_writer().map(|writer| writer.stats()).unwrap_or_default()
    }

    /// Writes everything that waits, seals the log, and stops recording. Dropping the last clone does the same.
    ///
    /// Episodes that are still open end as `aborted`.
    ///
    /// Returns what is missing without the program having heard of it: of which open episodes an entry could not be
    /// written, and why not.
    pub fn close(&self) -> Vec<(String, Error)> {
        // A forked child has nothing to close: the log is its parent's.
        if self.check_process().is_err() {
            return Vec::new();
        }
        let mut unheard = Vec::new();
        for recorder in self.inner.ownership.open_episodes.close() {
            recorder.close();
            episode::abort(&recorder, "the store was closed");
            unheard.extend(recorder.unheard_failure().map(|failure| (recorder.called(), failure)));
        }
        self.inner.own_log.close();
        unheard
    }

    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inner))
    }

    /// An error if this handle may write nothing: the store was closed, or was opened by the process that this one
    /// was forked from. Every verb that writes asks here first.
    pub fn check_open(&self) -> Result<()> {
        // First: in a forked child, a thread of the parent may hold the lock of the open episodes for ever.
        self.check_process()?;
        if self.inner.ownership.open_episodes.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Calls a waker whenever a record of this process is acknowledged, until the waker is dropped.
    pub fn add_waker(&self, waker: &Arc<dyn Waker>) {
        if self.check_process().is_ok() {
            self.inner.own_log.wakers.add(waker);
        }
    }

    /// An error in a forked child of the process that opened the store: the child cannot use what it inherited, and
    /// must open the store again.
    pub fn check_process(&self) -> Result<()> {
        self.inner.process.check()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.place.disk
    }

    pub(crate) fn key(&self) -> &ContentKey {
        &self.inner.place.key
    }

    fn options(&self) -> &Options {
        &self.inner.place.options
    }

    fn claim_batcher(&self) -> &ClaimBatcher {
        &self.inner.ownership.claim_batcher
    }

    fn leases(&self) -> &Leases {
        &self.inner.ownership.leases
    }

    fn open_episodes(&self) -> &episode::open_episodes::OpenEpisodes {
        &self.inner.ownership.open_episodes
    }

    /// Where small files are read from.
    fn cards(&self) -> &Arc<Storage> {
        &self.inner.place.cards
    }

    /// The catalog of synced records, as of the last look.
    fn looking(&self) -> MutexGuard<'_, Catalog> {
        self.inner.seen.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog of all records, synced or not. Logs only grow: what was read of a log stays right while its length
    /// is the same, whether or not its writer lives.
    fn looking_at_all(&self) -> MutexGuard<'_, Catalog> {
        self.inner.seen.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.inner.seen.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notices(&self) -> &NoticePoster {
        &self.inner.ownership.notices
    }

    fn plan_caches(&self) -> &planned::PlanCaches {
        &self.inner.seen.plans
    }

    /// The writer id of this process, if it has recorded or claimed anything.
    fn writer_id(&self) -> Option<Id> {
        self.current_writer().map(|writer| writer.id())
    }

    /// The writer of this process, if it has one.
    fn current_writer(&self) -> Option<Arc<Writer>> {
        self.check_process().ok()?;
        self.inner.own_log.current()
    }

    /// The writer of this process, for whoever is about to write.
    fn writer(&self) -> Result<Arc<Writer>> {
        self.check_open()?;
        // Asked again where a log is made: the store may be closed by then, and would not close that log.
        self.inner.own_log.writer(&self.inner.place, || self.check_open())
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
        self.inner.ownership.open_episodes.begin(&id)?;
        let subject = Subject::new(SubjectKey { what: What::Attempt, id, attempt }, name).starting(start);
        Recorder::begin(writer, subject, Arc::clone(&self.inner.place.disk), self.inner.place.level, begin)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Receipts keep the writer alive too, so it is closed explicitly.
        if self.process.is_this() {
            self.own_log.close();
        }
    }
}
