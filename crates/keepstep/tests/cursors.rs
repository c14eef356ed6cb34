//! Cursors: whatever `compact` and `prune` do in between, each end and each seal is told once.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

#[path = "scratch/copying.rs"]
mod copying;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use copying::copy_all;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::read::{FollowFrom, Item};
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Id, Options, Run, RunEvent, RunFollow, Step, Store, Value};

fn open(disk: Arc<dyn Files>) -> Store {
    let options = Options::default().background(false).segment_bytes_max(3000);
    Store::on_files(disk, options).expect("opens")
}

fn run_of(disk: Arc<dyn Files>) -> Run {
    open(disk).run("run", Value::Null).expect("opens")
}

/// Small blocks and segments, so that a small store has several; nothing has to wait.
fn at_once() -> CompactOptions {
    CompactOptions::default().grace(Duration::ZERO).segment_bytes_max(2_000).block_bytes_max(500)
}

/// A generator that takes its seed back.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What was recorded, what was deleted, and what a reader was told, in one store.
struct World {
    sim: SimDisk,
    /// The negative control: what `compact` kept of where things stood is lost.
    forgets: bool,
    /// All that happened, and whether it was pruned before everybody had heard of it.
    happened: BTreeMap<Id, bool>,
    tasks: u64,
    /// Writers that are still there.
    alive: Vec<Run>,
}

/// A reader that begins anew behind its cursor each time, or one that follows all along.
#[derive(Default)]
struct Reader {
    told: BTreeMap<Id, u32>,
    cursor: Option<String>,
    follow: Option<RunFollow>,
}

impl World {
    fn new(seed: u64, forgets: bool) -> Self {
        let sim = SimDisk::new(seed);
        Self { sim, forgets, happened: BTreeMap::new(), tasks: 0, alive: Vec::new() }
    }

    /// A process records some episodes, seals their group, and closes, is killed, or stays.
    fn record(&mut self, episodes: u64, leaves: u64) {
        let process = self.sim.process();
        let run = run_of(process.clone());
        for _ in 0..episodes {
            let task = format!("t{}", self.tasks);
            self.tasks += 1;
            let name = EpisodeName::task(task.clone());
            let episode = run.episode(name.clone()).expect("begins");
            for index in 0..self.tasks % 4 {
                let page = format!("{index} {task} ").repeat(30);
                episode.step(Step::new().reward(1.0).observation(Value::from(page))).expect("records");
            }
            episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
            self.happened.insert(run.episode_id(&name), false);
            if self.tasks.is_multiple_of(2) {
                let group = run.group(&task, 0, 1);
                group.seal(None, "trainer", None).expect("seals");
                self.happened.insert(group.id(), false);
            }
        }
        match leaves {
            0 => drop(run.store().close()),
            1 => process.kill(),
            _ => self.alive.push(run),
        }
    }

    fn compact(&self) {
        let store = open(self.sim.process());
        store.compact(at_once(), &mut |_| {}).expect("compacts");
        if self.forgets {
            self.forget_where_things_stood();
        }
    }

    /// Damages the index of each segment that `compact` made: it is rebuilt without the places of before.
    fn forget_where_things_stood(&self) {
        const FOOTER_AT: usize = 32;
        for (path, content) in self.sim.files() {
            if path.starts_with("grouped/") && path.ends_with(".seg") {
                let at = content.len() - FOOTER_AT;
                let footer = u64::from_le_bytes(content[at..at + 8].try_into().expect("8 bytes"));
                let wounded = footer + 30;
                let file = self.sim.process().open_rw(&path).expect("opens");
                file.write_at(&[content[wounded as usize] ^ 1], wounded).expect("writes");
            }
        }
    }

    /// Prunes one episode, by its task.
    fn prune(&mut self, chance: &mut Chance) {
        let run = run_of(self.sim.process());
        let name = EpisodeName::task(format!("t{}", chance.below(self.tasks)));
        let episode = run.episode_id(&name);
        let what = PruneFilter::default().episodes([episode]);
        let report = run.store().prune_with(&what, at_once(), false, &mut |_| {}).expect("prunes");
        if report.episodes.iter().any(|it| it.episode == episode) {
            self.happened.insert(episode, true);
        }
    }

    fn hear(&self, reader: &mut Reader, most: u64) {
        let stays = reader.follow.is_some();
        let mut follow = reader.follow.take().unwrap_or_else(|| {
            run_of(self.sim.process()).follow(reader.cursor.as_deref()).expect("follows behind its cursor")
        });
        for _ in 0..most {
            let Some((event, cursor)) = follow.next(Duration::ZERO).expect("follows") else { break };
            let id = match event {
                RunEvent::Ended { episode, .. } => episode,
                RunEvent::Sealed { group } => group,
                RunEvent::Unreadable { why } => panic!("{why}"),
            };
            *reader.told.entry(id).or_default() += 1;
            reader.cursor = Some(cursor);
        }
        if stays {
            reader.follow = Some(follow);
        }
    }

    /// Why a reader did not hear each event once.
    fn complaint(&self, reader: &Reader) -> Option<String> {
        for (id, &was_pruned) in &self.happened {
            match reader.told.get(id).copied().unwrap_or(0) {
                1 => {}
                0 if was_pruned => {}
                times => return Some(format!("{id} was told {times} times")),
            }
        }
        let made_up = reader.told.keys().find(|id| !self.happened.contains_key(id));
        made_up.map(|id| format!("{id} never happened"))
    }
}

/// One history: recording, reading, compacting and pruning in any order. Why somebody did not hear each event once.
fn history(seed: u64, forgets: bool) -> Option<String> {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new(seed, forgets);
    world.record(3, 0);
    let follow = run_of(world.sim.process()).follow(None).expect("follows");
    let mut stays = Reader { follow: Some(follow), ..Reader::default() };
    let mut comes_back = Reader::default();
    for _ in 0..14 {
        match chance.below(8) {
            0 | 1 => world.record(1 + chance.below(4), chance.below(3)),
            2 | 3 => world.compact(),
            4 => world.prune(&mut chance),
            5 => world.hear(&mut stays, 1 + chance.below(4)),
            _ => world.hear(&mut comes_back, 1 + chance.below(4)),
        }
    }
    for reader in [&mut stays, &mut comes_back] {
        world.hear(reader, u64::MAX);
        // The last cursor shows nothing more, before and after what is left is moved.
        world.compact();
        world.compact();
        let mut again = Reader { cursor: reader.cursor.clone(), told: reader.told.clone(), follow: None };
        world.hear(&mut again, u64::MAX);
        if let Some(why) = world.complaint(&again) {
            return Some(why);
        }
    }
    None
}

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_116)
}

/// Whatever happens between two events, each is told once: to one that follows all along, and to processes that come
/// and go with a cursor. (A cursor that was taken in compacted data was empty, and one that stood in a log that was
/// compacted afterwards was refused.)
#[test]
fn each_event_is_told_once_whatever_is_compacted() {
    for seed in seed()..seed() + 60 {
        let why = history(seed, false);
        assert_eq!(why, None, "KEEPSTEP_SEED={seed}");
    }
}

/// Negative control: if `compact` does not keep where things stood, somebody hears something twice.
#[test]
fn forgetting_where_things_stood_is_caught() {
    let caught = (seed()..seed() + 60).find_map(|seed| history(seed, true));
    let why = caught.expect("went unnoticed in 60 histories");
    println!("caught: {why}");
}

/// Whose record it is, of what, which attempt, and its number there.
type Name = (Id, Id, u32, u32);

/// Follows from where somebody stopped: the next records, and where it stops.
fn follow_on(store: &Store, from: FollowFrom, most: usize, told: &mut Vec<Name>) -> FollowFrom {
    let mut follow = store.follow(from).expect("follows");
    for _ in 0..most {
        let Some(next) = follow.next(Duration::ZERO).expect("follows") else { break };
        let Item::Record(record) = next.item else { panic!("{next:?}") };
        told.push((next.writer, next.bind.id, next.bind.attempt, record.seq));
    }
    FollowFrom::Behind(follow.position().expect("nothing is open").clone())
}

fn copy_of_golden(name: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/grouped/store");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cursors-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&to);
    copy_all(&golden, &to);
    to
}

/// 0.1 did not keep where the records stood that it compacted. Going on is exact there all the same, also when they are
/// regrouped in between.
#[test]
fn what_0_1_compacted_is_told_once() {
    let scratch = copy_of_golden("once");
    let store = Store::open(&scratch, Options::default()).expect("opens");
    let mut all = Vec::new();
    let end = follow_on(&store, FollowFrom::Start, usize::MAX, &mut all);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "each once");
    assert!(all.len() > 20, "{} records", all.len());
    assert_eq!(follow_on(&store, end.clone(), 1, &mut Vec::new()), end, "nothing is new");

    let mut told = Vec::new();
    let mut at = follow_on(&store, FollowFrom::Start, 1, &mut told);
    for _ in 0..all.len() / 2 {
        at = follow_on(&store, at, 1, &mut told);
    }
    // One of several in a segment: the others are moved.
    let shares = |one: &&Name| all.iter().any(|other| other.0 == one.0 && other.1 != one.1);
    let episode = all.iter().find(shares).expect("some are together").1;
    let what = PruneFilter::default().episodes([episode]);
    let report = store.prune_with(&what, at_once(), false, &mut |_| {}).expect("prunes");
    assert!(report.compacted.segments_made > 0, "what was compacted is regrouped: {report:?}");
    for _ in 0..all.len() {
        at = follow_on(&store, at, 1, &mut told);
    }
    told.sort_unstable();
    all.retain(|name| name.1 != episode || told.contains(name));
    all.sort_unstable();
    assert_eq!(told, all);
    std::fs::remove_dir_all(&scratch).expect("removes");
}
