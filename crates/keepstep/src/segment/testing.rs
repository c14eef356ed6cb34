//! Makes small stores by hand, frame by frame, for the tests of all that reads.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keepstep_format::card::kind;
use keepstep_format::commit::{Bind, Listed, What, put_commit_body};
use keepstep_format::encode::{Encoded, Encoder, InLog, Known, Link, Stored};
use keepstep_format::footer::{Footer, FooterEntry, put_index, put_list};
use keepstep_format::frame::{
    FRAME_BODY_MAX, Flags, FrameSpec, Kind, Place, Reference, put_head, put_record,
};
use keepstep_format::hash::{ContentKey, Hash};
use keepstep_format::record::{Dictionary, compress};
use keepstep_format::segment::SegmentHeader;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::cards::publish_card;
use super::names::{run_folder, run_path};
use super::summary::SummaryPart;
use super::{Liveness, Storage, Summary};
use crate::disk::{Directory, RealDisk};
use crate::recover::Recovery;

pub(crate) const STORE: Id = Id([0xaa; 16]);

/// A folder of its own for each test, gone when the test is over.
pub(crate) struct TestStore {
    pub(crate) path: PathBuf,
}

impl TestStore {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("keepstep-{}-{count}-{name}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub(crate) fn storage(&self) -> Arc<Storage> {
        Arc::new(Storage::new(Directory::over(Arc::new(RealDisk::open(&self.path).unwrap())), STORE))
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    pub(crate) fn write(&self, path: &str, data: &[u8]) {
        let path = self.file(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }

    pub(crate) fn publish(&self, path: &str, kind: u16, fields: &[(u8, Value)]) {
        std::fs::create_dir_all(self.file(path).parent().unwrap()).unwrap();
        publish_card(&self.storage(), path, kind, fields).unwrap();
    }

    /// Every file, by its path in the store.
    pub(crate) fn files(&self) -> Vec<String> {
        fn walk(root: &Path, dir: &Path, out: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, out);
                } else {
                    out.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.path, &self.path, &mut out);
        out.sort();
        out
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub(crate) fn recovery(liveness: Liveness) -> Recovery {
    Recovery::new(Box::new(move |_| liveness))
}

pub(crate) fn attempt(episode: u8) -> Bind {
    Bind { what: What::Attempt, id: Id([episode; 16]), attempt: 0 }
}

/// The log of one writer in the making.
pub(crate) struct LogMaker {
    pub(crate) writer: Id,
    pub(crate) key: ContentKey,
    /// Whether records are compressed.
    pub(crate) packs: bool,
    pub(crate) dictionary: Option<((u64, u64), Arc<Dictionary>)>,
    known: KnownPlaces,
    seqs: HashMap<Bind, u32>,
    segment: SegmentMaker,
    sealed: Option<(u64, u64)>,
    done: Vec<(u64, Vec<u8>)>,
}

#[derive(Default)]
struct KnownPlaces(RefCell<HashMap<Hash, Stored>>);

impl Known for KnownPlaces {
    fn find(&self, hash: &Hash) -> InLog {
        self.0.borrow().get(hash).map_or(InLog::No, |stored| InLog::At(Box::new(stored.clone())))
    }
}

/// Whose it is, its first sequence, its records, and what they say.
type Slot = (Bind, u32, Vec<(u64, u8)>, Summary);

struct SegmentMaker {
    number: u64,
    salt: u64,
    bytes: Vec<u8>,
    synced_to: u64,
    listed: Vec<Listed>,
    slots: Vec<Slot>,
    log_frames: Vec<(u64, u8)>,
    depends_on: std::collections::BTreeSet<u64>,
    is_sealed: bool,
}

impl LogMaker {
    pub(crate) fn new(writer: u8) -> Self {
        let writer = Id([writer; 16]);
        Self {
            writer,
            key: ContentKey::new(&STORE.0),
            packs: false,
            dictionary: None,
            known: KnownPlaces::default(),
            seqs: HashMap::new(),
            segment: SegmentMaker::new(writer, 0, None, None),
            sealed: None,
            done: Vec::new(),
        }
    }

    /// Where the next frame goes.
    pub(crate) fn offset(&self) -> u64 {
        self.segment.bytes.len() as u64
    }

    fn frame(&mut self, kind: Kind, flags: Flags, (slot, seq): (u32, u32), head: &[u8], body: &[u8]) -> u64 {
        let segment = &mut self.segment;
        let offset = segment.bytes.len() as u64;
        let mut crcs: Vec<u32> = body.chunks(FRAME_BODY_MAX).map(crc32c::crc32c).collect();
        if crcs.is_empty() {
            crcs.push(crc32c::crc32c(&[]));
        }
        let spec = FrameSpec { kind, flags, slot, seq, synced_to: None, head };
        put_record(&mut segment.bytes, segment.salt, offset, &spec, body, &crcs);
        segment.listed.push(Listed { offset, kind: kind as u8, slot, seq });
        offset
    }

    fn slot(&mut self, bind: &Bind, first_seq: u32) -> u32 {
        if let Some(index) = self.segment.slots.iter().position(|slot| slot.0 == *bind) {
            return index as u32 + 1;
        }
        let slot = self.segment.slots.len() as u32 + 1;
        let offset = self.frame(Kind::Bind, Flags::NONE, (slot, 0), &[], &bind.encode());
        self.segment.log_frames.push((offset, Kind::Bind as u8));
        self.segment.slots.push((*bind, first_seq, Vec::new(), Summary::default()));
        slot
    }

    /// Adds a record to the batch, and says where it stands.
    pub(crate) fn record(&mut self, bind: &Bind, kind: Kind, values: &[(u8, Value)]) -> u64 {
        let seq = *self.seqs.entry(*bind).or_insert(0);
        self.seqs.insert(*bind, seq + 1);
        let slot = self.slot(bind, seq);
        let mut encoder = Encoder::fields(&self.key, &self.known);
        for (number, value) in values {
            encoder.field(*number);
            encoder.put(value).unwrap();
        }
        let encoded = encoder.finish();
        let offset = self.encoded(kind, (slot, seq), encoded);
        let entry = &mut self.segment.slots[slot as usize - 1];
        entry.2.push((offset, kind as u8));
        entry.3.add(&SummaryPart::of(kind as u8, values));
        offset
    }

    /// Adds a VALUE frame.
    pub(crate) fn value(&mut self, value: &Value) -> u64 {
        let mut encoder = Encoder::value(&self.key, &self.known);
        encoder.put(value).unwrap();
        let encoded = encoder.finish();
        let offset = self.encoded(Kind::Value, (0, 0), encoded);
        self.segment.log_frames.push((offset, Kind::Value as u8));
        offset
    }

    /// Adds a DICT frame; what follows is packed with it.
    pub(crate) fn use_dictionary(&mut self, bytes: &[u8]) {
        let offset = self.frame(Kind::Dict, Flags::NONE, (0, 0), &[], bytes);
        self.segment.log_frames.push((offset, Kind::Dict as u8));
        self.dictionary = Some(((self.segment.number, offset), Arc::new(Dictionary::new(bytes.to_vec()))));
    }

    fn encoded(&mut self, kind: Kind, name: (u32, u32), encoded: Encoded) -> u64 {
        let number = self.segment.number;
        let references: Vec<Reference> = encoded.links.iter().map(placed).collect();
        let dictionary = self.dictionary.clone();
        let packed = compress(&encoded.body, dictionary.as_ref().map(|(_, it)| &**it)).filter(|_| self.packs);
        let mut flags = Flags::NONE;
        let mut dict_at = None;
        if packed.is_some() {
            flags = flags | Flags::ZSTD;
            if let Some((at, _)) = &dictionary {
                flags = flags | Flags::DICT;
                dict_at = Some(*at);
            }
        }
        let mut head = Vec::new();
        if !references.is_empty() || dict_at.is_some() {
            put_head(&mut head, number, dict_at, &references);
        }
        let targets = references.iter().map(|it| it.place.segment).chain(dict_at.map(|(segment, _)| segment));
        self.segment.depends_on.extend(targets.map(|to| number - to).filter(|back| *back > 0));
        let offset = self.frame(kind, flags, name, &head, packed.as_deref().unwrap_or(&encoded.body));
        for fresh in &encoded.fresh {
            let place = Place { segment: number, offset, inner: fresh.inner, base: fresh.base };
            let stored = Stored { place, take: fresh.take, spans: Vec::new(), depth: 0 };
            self.known.0.borrow_mut().entry(fresh.hash).or_insert(stored);
        }
        offset
    }

    /// Commits the batch.
    pub(crate) fn commit(&mut self) {
        let segment = &mut self.segment;
        let offset = segment.bytes.len() as u64;
        let mut body = Vec::new();
        put_commit_body(&mut body, &segment.listed);
        segment.listed.clear();
        let spec = FrameSpec {
            kind: Kind::Commit,
            flags: Flags::NONE,
            slot: 0,
            seq: 0,
            synced_to: Some(segment.synced_to),
            head: &[],
        };
        let crc = crc32c::crc32c(&body);
        put_record(&mut segment.bytes, segment.salt, offset, &spec, &body, &[crc]);
    }

    /// Everything so far was synced; the next commit says so.
    pub(crate) fn sync(&mut self) {
        self.segment.synced_to = self.offset();
    }

    /// Commits the batch, and says that it was synced.
    pub(crate) fn commit_synced(&mut self) {
        self.commit();
        self.sync();
        self.commit();
    }

    /// Goes on in the next segment. The one before stays unsealed.
    pub(crate) fn next_segment(&mut self, voids: Option<(u64, u64)>) {
        let number = self.segment.number + 1;
        if self.segment.is_sealed {
            self.sealed = Some((number - 1, self.offset()));
        }
        let next = SegmentMaker::new(self.writer, number, voids, self.sealed);
        let before = std::mem::replace(&mut self.segment, next);
        self.done.push((number - 1, before.bytes));
    }

    /// Forgets records from this sequence on, and all places: as a writer that gave a segment up.
    pub(crate) fn rewind(&mut self, bind: &Bind, seq: u32) {
        self.seqs.insert(*bind, seq);
        self.known = KnownPlaces::default();
    }

    /// Lets the next reference to a value lead to where another one stands.
    pub(crate) fn mislead(&mut self, value: &Value) {
        let offset = self.value(&Value::from(noise(77, 500)));
        let hash = keepstep_format::rehash::Rehash::new(&self.key).value(value).unwrap();
        let mut known = self.known.0.borrow_mut();
        known.get_mut(&hash).unwrap().place.offset = offset;
    }

    /// Forgets all places: nothing is referred to any more.
    pub(crate) fn forget(&mut self) {
        self.known = KnownPlaces::default();
    }

    /// Seals the segment.
    pub(crate) fn seal(&mut self) {
        let mut lists = Vec::new();
        let segment = &mut self.segment;
        let mut entries = vec![FooterEntry {
            what: What::Log,
            id: Id::NONE,
            attempt: 0,
            slot: 0,
            first_seq: 0,
            count: segment.log_frames.len() as u32,
            list_position: put_list(&mut lists, segment.log_frames.iter().copied()),
            summary: Vec::new(),
        }];
        for (index, (bind, first_seq, records, summary)) in segment.slots.iter().enumerate() {
            entries.push(FooterEntry {
                what: bind.what,
                id: bind.id,
                attempt: bind.attempt,
                slot: index as u32 + 1,
                first_seq: *first_seq,
                count: records.len() as u32,
                list_position: put_list(&mut lists, records.iter().copied()),
                summary: summary.encode(&self.key),
            });
        }
        entries.sort_by_key(|entry| (entry.id, entry.attempt, entry.what.number(), entry.first_seq));
        let footer = Footer { entries, depends_on: segment.depends_on.iter().copied().collect() };
        let offset = segment.bytes.len() as u64;
        put_index(&mut segment.bytes, segment.salt, offset, &footer, &lists);
        segment.is_sealed = true;
    }

    /// All segments, the one in the making last.
    pub(crate) fn segments(&self) -> Vec<(u64, Vec<u8>)> {
        let mut all = self.done.clone();
        all.push((self.segment.number, self.segment.bytes.clone()));
        all
    }

    /// Puts all segments into a store.
    pub(crate) fn save(&self, store: &TestStore) {
        for (number, bytes) in self.segments() {
            store.write(&super::names::segment_path(&self.writer, number), &bytes);
        }
    }
}

/// Appends what is new, as a writer does.
pub(crate) fn append(maker: &LogMaker, store: &TestStore) {
    use std::io::Write;
    for (number, bytes) in maker.segments() {
        let path = store.file(&super::names::segment_path(&maker.writer, number));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let known = std::fs::metadata(&path).map_or(0, |meta| meta.len() as usize);
        if known == 0 {
            // A segment gets its name with its header.
            let temporary = path.with_file_name(".tmp-1");
            std::fs::write(&temporary, &bytes[..128]).unwrap();
            std::fs::rename(temporary, &path).unwrap();
        }
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&bytes[known.max(128)..]).unwrap();
    }
}

fn placed(link: &Link) -> Reference {
    match link {
        Link::Placed(reference) => *reference,
        other => panic!("nothing is pending in a test: {other:?}"),
    }
}

impl SegmentMaker {
    fn new(writer: Id, number: u64, voids: Option<(u64, u64)>, sealed: Option<(u64, u64)>) -> Self {
        let salt =
            0x1234_5678_9abc_def0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(writer.0[0]);
        let header = SegmentHeader { store: STORE, writer, number, salt, created: 1, voids, sealed };
        Self {
            number,
            salt,
            bytes: header.encode().to_vec(),
            synced_to: 128,
            listed: Vec::new(),
            slots: Vec::new(),
            log_frames: Vec::new(),
            depends_on: std::collections::BTreeSet::new(),
            is_sealed: false,
        }
    }
}

/// A text that does not compress and is not like another.
pub(crate) fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state >> 32) as u8 % 26)
    };
    (0..bytes).map(letter).collect()
}

pub(crate) fn begin(task: &str) -> Vec<(u8, Value)> {
    vec![
        (fields::TIME, Value::Int(1000)),
        (fields::RUN, "shop-agent".into()),
        (fields::GENERATION_ID, Value::bytes([7; 16])),
        (fields::TASK, task.into()),
        (fields::ITERATION, Value::Int(0)),
        (fields::SAMPLE, Value::Int(3)),
    ]
}

/// What the records of [`begin`] rest on, besides claims: the card of their run.
pub(crate) fn make_run(store: &TestStore) {
    let run = [
        (fields::RUN, Value::from("shop-agent")),
        (fields::GENERATION_ID, Value::bytes([7; 16])),
        (fields::GENERATION, Value::Int(0)),
    ];
    let path = run_path(&run_folder("shop-agent"), 0);
    store.publish(&path, kind::RUN, &run);
}

pub(crate) fn step(index: i64, observation: Value) -> Vec<(u8, Value)> {
    vec![
        (fields::TIME, Value::Int(1001 + index)),
        (fields::INDEX, Value::Int(index)),
        (fields::OBSERVATION, observation),
        (fields::REWARD, Value::Float(0.5)),
    ]
}

/// A growing history: `turns` messages of `bytes` each.
pub(crate) fn history(turns: usize, bytes: usize) -> Value {
    Value::list((0..turns).map(|turn| Value::from(noise(turn as u64, bytes))))
}

pub(crate) fn end(why: &str) -> Vec<(u8, Value)> {
    vec![(fields::TIME, Value::Int(2000)), (fields::WHY, why.into())]
}
