//! Streams that are read again and again, in the middle of any history: always as by somebody who never read before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::{Errno, Fault, On, SimDisk, SimProcess};
use keepstep::tend::CompactOptions;
use keepstep::{Broken, Error, Level, Store, Stream, StreamReader, StreamView, Value};

use super::{options, seed, value};

/// The same for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What was done, as a failure tells it.
type Told = Vec<String>;

/// Somebody who puts entries, in a process of its own.
struct Putter {
    process: Arc<SimProcess>,
    stream: Stream,
}

/// Somebody who reads again and again: all of it, and what is new.
struct Again {
    stream: Stream,
    reader: StreamReader,
    /// All that the reader has told.
    told: BTreeMap<String, Value>,
}

/// What must be in the stream, and what may be.
#[derive(Default)]
struct Paper {
    acknowledged: BTreeMap<String, Vec<Value>>,
    /// Put, and refused or failed: perhaps recorded.
    tried: Vec<(String, Value)>,
    frozen: Option<StreamView>,
    is_hidden: bool,
    /// How often a reader had to begin again, found nothing new, found a conflict.
    tally: [u64; 3],
}

struct World {
    sim: SimDisk,
    dice: Dice,
    broken: Option<Broken>,
    putters: Vec<Putter>,
    readers: Vec<Again>,
    paper: Paper,
    count: u64,
    told: Told,
}

fn stream_on(disk: Arc<dyn Files>, level: Level, segment_bytes_max: u64, broken: Option<Broken>) -> Stream {
    let options = options(broken).level(level).segment_bytes_max(segment_bytes_max);
    let store = Store::on_files(disk, options).expect("opens");
    store.run("run", Value::Null).expect("opens").stream("tokens")
}

impl World {
    fn new(seed: u64, broken: Option<Broken>) -> Self {
        let (sim, dice) = (SimDisk::new(seed), Dice::new(seed));
        let (putters, readers, paper) = (Vec::new(), Vec::new(), Paper::default());
        Self { sim, dice, broken, putters, readers, paper, count: 0, told: Vec::new() }
    }

    fn do_something(&mut self) -> Result<(), String> {
        match self.dice.below(32) {
            0..3 => self.come(),
            3 if self.readers.len() < 4 => self.read_from_now_on(),
            4 => self.go(),
            5 => self.compact(),
            6 => self.sim.advance(Duration::from_secs(40)),
            7 if self.dice.one_in(12) => self.freeze(),
            8 if self.dice.one_in(25) => self.hide(),
            9..12 => self.put_while_no_sync_works(),
            12..24 => self.put(),
            _ => return self.look(),
        }
        Ok(())
    }

    fn come(&mut self) {
        let process = self.sim.process();
        let level = if self.dice.one_in(3) { Level::Kill } else { Level::Power };
        let stream = stream_on(process.clone(), level, [1500, 1 << 20][self.dice.below(2) as usize], None);
        self.told.push(format!("a putter comes, at level {level:?}"));
        self.putters.push(Putter { process, stream });
    }

    fn read_from_now_on(&mut self) {
        let stream = stream_on(self.sim.process(), Level::Power, 1 << 20, self.broken);
        let reader = stream.reader();
        self.told.push("a reader comes".to_owned());
        self.readers.push(Again { stream, reader, told: BTreeMap::new() });
    }

    /// A putter goes: it closes its log, or is killed.
    fn go(&mut self) {
        if self.putters.is_empty() {
            return;
        }
        let putter = self.putters.swap_remove(self.dice.below(self.putters.len() as u64) as usize);
        if self.dice.one_in(2) {
            putter.process.kill();
        }
        self.told.push("a putter goes".to_owned());
    }

    fn compact(&mut self) {
        let store = Store::on_files(self.sim.process(), options(None)).expect("opens");
        let compacted = store.compact(CompactOptions::default().grace(Duration::ZERO), &mut |_| {});
        self.told.push(format!("compacts: {:?}", compacted.map(|it| it.logs)));
    }

    fn an_entry(&mut self) -> (String, Value) {
        self.count += 1;
        let id = match self.dice.below(4) {
            0 => format!("again {}", self.dice.below(6)),
            _ => format!("entry {}", self.count),
        };
        let value = if self.dice.one_in(25) { Value::Int(self.count as i64) } else { value(&id) };
        (id, value)
    }

    fn put(&mut self) {
        let Some(at) = self.dice.below(self.putters.len().max(1) as u64).try_into().ok() else { return };
        let (id, value) = self.an_entry();
        let Some(putter) = self.putters.get::<usize>(at) else { return };
        let put = putter.stream.put(&id, value.clone()).and_then(|receipt| receipt.wait());
        self.told.push(format!("put {id:?}: {:?}", put.as_ref().err().map(ToString::to_string)));
        match put {
            Ok(()) => {
                let values = self.paper.acknowledged.entry(id).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            Err(Error::BadInput { .. }) => {}
            Err(_) => self.paper.tried.push((id, value)),
        }
    }

    /// An entry is written and cannot be synced: it is seen, and given up when its writer goes on.
    fn put_while_no_sync_works(&mut self) {
        self.sim.faults().plan(Fault::new(On::Sync, Errno::Eio).at(".seg").until_cleared());
        self.told.push("no sync works".to_owned());
        self.put();
        if self.dice.one_in(2) {
            let looked = self.look();
            self.told.extend(looked.err());
        }
        self.sim.faults().clear();
    }

    fn freeze(&mut self) {
        let frozen = stream_on(self.sim.process(), Level::Power, 1 << 20, None).freeze();
        self.told.push(format!("freezes: {:?}", frozen.as_ref().map(|it| it.entries.len())));
        if let (Ok(view), None) = (frozen, &self.paper.frozen) {
            self.paper.frozen = Some(view);
        }
    }

    fn hide(&mut self) {
        self.told.push("drops".to_owned());
        stream_on(self.sim.process(), Level::Power, 1 << 20, None).hide().expect("hides");
        self.paper.is_hidden = true;
    }

    /// One who reads again looks; it must see what somebody sees who never read before, and what is on paper.
    fn look(&mut self) -> Result<(), String> {
        if self.readers.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.readers.len() as u64) as usize;
        let wants_all = self.dice.one_in(3);
        let fresh = stream_on(self.sim.process(), Level::Power, 1 << 20, None).read();
        let fresh = fresh.map_err(|error| format!("cannot be read: {error}"))?;
        self.told.push(format!("reader {at} looks at {} entries", fresh.entries.len()));
        self.paper.check(&fresh)?;
        let again = &mut self.readers[at];
        if wants_all {
            let read = again.stream.read().map_err(|error| format!("cannot be read again: {error}"))?;
            return if read == fresh { Ok(()) } else { Err(format!("read again {read:?}, not {fresh:?}")) };
        }
        let news = again.reader.look().map_err(|error| format!("cannot be looked at again: {error}"))?;
        if news.is_from_start {
            again.told.clear();
        }
        let tally = [news.is_from_start, news.entries.is_empty(), !news.conflicts.is_empty()];
        self.paper.tally.iter_mut().zip(tally).for_each(|(sum, more)| *sum += u64::from(more));
        for (id, value) in news.entries {
            if again.told.insert(id.clone(), value).is_some() {
                return Err(format!("{id} is told twice"));
            }
        }
        let whole: BTreeMap<_, _> = fresh.entries.iter().cloned().collect();
        let (told, rest) = (&again.told, (news.conflicts, news.lost, news.is_frozen, news.is_hidden));
        let is_same =
            *told == whole && rest == (fresh.conflicts, fresh.lost, fresh.is_frozen, fresh.is_hidden);
        let count = again.reader.entry_count();
        match is_same && count == told.len() {
            true => Ok(()),
            false => Err(format!("told in parts {told:?} and {rest:?} ({count}), not {whole:?}")),
        }
    }
}

impl Paper {
    fn check(&self, view: &StreamView) -> Result<(), String> {
        if self.is_hidden {
            return if view.is_hidden && view.entries.is_empty() {
                Ok(())
            } else {
                Err(format!("shows {view:?}"))
            };
        }
        if !view.lost.is_empty() {
            return Err(format!("lost {:?}", view.lost));
        }
        if let Some(frozen) = &self.frozen {
            return if view == frozen {
                Ok(())
            } else {
                Err(format!("frozen as {frozen:?}, and is {view:?}"))
            };
        }
        let mut found: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        view.entries.iter().for_each(|(id, value)| found.entry(id).or_default().push(value));
        for conflict in &view.conflicts {
            found.entry(&conflict.id).or_default().extend(conflict.values.iter().map(|(_, value)| value));
        }
        for (id, values) in &self.acknowledged {
            let there = found.get(id.as_str()).map_or(&[][..], Vec::as_slice);
            if let Some(missing) = values.iter().find(|value| !there.contains(value)) {
                return Err(format!("{id} = {missing:?} was acknowledged, and is not there"));
            }
        }
        for (id, values) in found {
            let may_be = |value: &&Value| {
                let is_tried = self.tried.iter().any(|(tried, other)| tried == id && other == *value);
                is_tried || self.acknowledged.get(id).is_some_and(|known| known.contains(value))
            };
            if let Some(strange) = values.iter().find(|value| !may_be(value)) {
                return Err(format!("{id} = {strange:?} was never put"));
            }
        }
        Ok(())
    }
}

/// One history; why it reads otherwise, if it does.
fn history(seed: u64, broken: Option<Broken>) -> Result<[u64; 3], String> {
    let mut world = World::new(seed, broken);
    world.come();
    world.read_from_now_on();
    for _ in 0..90 {
        if let Err(why) = world.do_something() {
            let told = world.told.join("\n");
            return Err(format!("{told}\nKEEPSTEP_SEED={seed}: {why}"));
        }
    }
    Ok(world.paper.tally)
}

/// Whatever is put, frozen, dropped, killed, compacted or given up: whoever reads again, from where it read last, sees what a
/// new reader sees, and what is on paper. `KEEPSTEP_SEEDS` says how many histories.
#[test]
fn any_history_reads_again_as_at_first() {
    let seeds = std::env::var("KEEPSTEP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let mut sum = [0; 3];
    for nth in 0..seeds {
        let tally = history(seed() + 30_000_000 + nth, None).unwrap_or_else(|why| panic!("{why}"));
        sum.iter_mut().zip(tally).for_each(|(sum, more)| *sum += more);
    }
    println!("{seeds} histories read again; began again, saw nothing new, saw a conflict: {sum:?}");
    assert!(seeds < 150 || sum.iter().all(|count| *count > 0), "{sum:?}");
}

#[test]
fn a_reader_that_trusts_what_is_not_settled_is_caught() {
    let broken = Some(Broken::ReadTrustsUnsettled);
    let caught: BTreeSet<u64> =
        (0..150).filter(|nth| history(seed() + 40_000_000 + nth, broken).is_err()).collect();
    println!("caught in {} of 150 histories", caught.len());
    assert!(!caught.is_empty());
}
