use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use keepstep_format::commit::Bind;
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;

use super::*;

mod follow;
mod notes;

use crate::recover::Recovery;
use crate::segment::testing::*;
use crate::segment::{Contents, Liveness, ScanUnsealed};

fn catalog(store: &TestStore, liveness: Liveness) -> Catalog {
    Catalog::over(store.storage(), Arc::new(recovery(liveness))).unwrap()
}

fn key(maker: &LogMaker, bind: &Bind) -> AttemptKey {
    AttemptKey { episode: bind.id, attempt: bind.attempt, writer: maker.writer }
}

/// An episode of `steps` steps whose observation is a growing history.
fn record_steps(maker: &mut LogMaker, bind: &Bind, steps: std::ops::Range<i64>) {
    for index in steps {
        maker.record(bind, Kind::Step, &step(index, history(index as usize + 1, 300)));
        maker.commit_synced();
    }
}

fn assert_steps(attempt: &Attempt, steps: i64) {
    assert_eq!(attempt.steps.len() as i64, steps);
    for (index, found) in (0..).zip(&attempt.steps) {
        assert_eq!(found.index, index);
        assert_eq!(found.observation, Some(history(index as usize + 1, 300)), "step {index}");
        assert_eq!((found.reward, found.time), (Some(0.5), Some(1001 + index)));
    }
}

/// What was recorded is read back, from sealed and unsealed segments, packed or not, with a dictionary or without.
#[test]
fn an_attempt_comes_back_as_it_was_recorded() {
    for packs in [false, true] {
        for with_dictionary in [false, true] {
            let store = TestStore::new("comes-back");
            let mut maker = LogMaker::new(1);
            maker.packs = packs;
            let bind = attempt(5);
            maker.record(&bind, Kind::Begin, &begin("shop-17"));
            if with_dictionary {
                maker.use_dictionary(noise(99, 2000).as_bytes());
            }
            record_steps(&mut maker, &bind, 0..5);
            maker.seal();
            maker.next_segment(None);
            record_steps(&mut maker, &bind, 5..9);
            maker.record(&bind, Kind::End, &end("finished"));
            maker.commit_synced();
            maker.save(&store);

            for liveness in [Liveness::Live, Liveness::Dead, Liveness::Unknown] {
                let catalog = catalog(&store, liveness);
                let found = catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap();
                assert_steps(&found, 9);
                assert!(found.is_whole());
                assert_eq!(found.begin.unwrap().task.as_deref(), Some("shop-17"));
                assert_eq!(found.end.unwrap().why.as_deref(), Some("finished"));
                let kinds: Vec<StepKind> = found.steps.iter().map(|step| step.kind).collect();
                assert_eq!(kinds[8], StepKind::Last, "{kinds:?}");
                assert_eq!(kinds[7], StepKind::Mid);
            }
        }
    }
}

/// A list of attempts needs no records of sealed segments, and adds up over all of them.
#[test]
fn a_list_shows_what_was_recorded() {
    let store = TestStore::new("list");
    let mut maker = LogMaker::new(1);
    for episode in 1..4 {
        maker.record(&attempt(episode), Kind::Begin, &begin(&format!("task {episode}")));
        record_steps(&mut maker, &attempt(episode), 0..2);
    }
    maker.seal();
    maker.next_segment(None);
    record_steps(&mut maker, &attempt(2), 2..4);
    maker.record(&attempt(2), Kind::End, &end("truncated"));
    maker.commit_synced();
    maker.save(&store);
    let mut other = LogMaker::new(2);
    other.record(&attempt(9), Kind::Begin, &begin("another"));
    other.commit_synced();
    other.save(&store);

    for liveness in [Liveness::Live, Liveness::Dead, Liveness::Dead, Liveness::Unknown] {
        let mut catalog = catalog(&store, liveness);
        let attempts = catalog.attempts().unwrap();
        let names: Vec<_> = attempts.iter().map(|info| info.summary.task.clone().unwrap()).collect();
        assert_eq!(names, ["task 1", "task 2", "task 3", "another"]);
        let second = &attempts[1];
        assert_eq!((second.summary.steps, second.records), (4, 6));
        assert_eq!(second.summary.total_reward, Some(2.0));
        assert_eq!(second.summary.why.as_deref(), Some("truncated"));
        assert_eq!((second.summary.first_time, second.summary.last_time), (Some(1000), Some(2000)));
        assert_eq!(second.summary.run.as_deref(), Some("shop-agent"));
        assert_eq!((second.summary.iteration, second.summary.sample), (Some(0), Some(3)));
        assert_eq!(attempts[0].summary.why, None);
        assert!(catalog.troubles().is_empty());
    }
    assert!(store.file(&format!("scans/{}.1", maker.writer)).exists(), "what was found was published");
}

/// Of a writer that is alive only what it said to be synced is there; of others all that is whole.
#[test]
fn a_live_log_ends_where_it_is_synced() {
    let store = TestStore::new("live");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    record_steps(&mut maker, &bind, 0..3);
    maker.record(&bind, Kind::Step, &step(3, history(4, 300)));
    maker.commit();
    maker.save(&store);
    for (liveness, steps) in [(Liveness::Live, 3), (Liveness::Unknown, 4), (Liveness::Dead, 4)] {
        let found = catalog(&store, liveness).reader(&key(&maker, &bind)).unwrap().read().unwrap();
        assert_steps(&found, steps);
        assert!(found.is_whole());
    }
}

/// What was written again after a failed sync is seen once, as it was written last.
#[test]
fn records_of_a_segment_that_was_given_up_are_seen_once() {
    let store = TestStore::new("void");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    record_steps(&mut maker, &bind, 0..3);
    let synced_to = maker.offset();
    maker.record(&bind, Kind::Step, &step(3, "never acknowledged".into()));
    maker.commit();
    maker.next_segment(Some((0, synced_to)));
    maker.rewind(&bind, 3);
    record_steps(&mut maker, &bind, 3..6);
    maker.save(&store);
    for liveness in [Liveness::Live, Liveness::Unknown, Liveness::Dead, Liveness::Dead] {
        let found = catalog(&store, liveness).reader(&key(&maker, &bind)).unwrap().read().unwrap();
        assert_steps(&found, 6);
        assert!(found.is_whole());
    }
}

/// A record whose bytes are damaged is told by name and place, and costs what refers to it; the rest is read.
#[test]
fn a_damaged_step_is_told_and_the_others_stay() {
    for is_sealed in [true, false] {
        let store = TestStore::new("damaged-step");
        let mut maker = LogMaker::new(1);
        let bind = attempt(1);
        maker.record(&bind, Kind::Begin, &begin("t"));
        maker.commit();
        record_steps(&mut maker, &bind, 0..2);
        let at = maker.offset();
        record_steps(&mut maker, &bind, 2..5);
        if is_sealed {
            maker.seal();
        }
        maker.save(&store);
        let path = store.file(&crate::segment::names::segment_path(&maker.writer, 0));
        let mut data = std::fs::read(&path).unwrap();
        data[at as usize + 200] ^= 1;
        std::fs::write(&path, &data).unwrap();

        let found = catalog(&store, Liveness::Dead).reader(&key(&maker, &bind)).unwrap().read().unwrap();
        assert_eq!(found.steps.len(), 5, "sealed {is_sealed}");
        let damaged = &found.steps[2];
        assert_eq!((damaged.index, damaged.observation.clone(), damaged.reward), (2, None, None));
        assert!(damaged.damaged.contains(&"observation") && damaged.damaged.contains(&"reward"));
        assert_eq!(damaged.places, [RecordPlace { segment: 0, offset: at }]);
        for index in [3, 4] {
            let later = &found.steps[index];
            assert_eq!((later.reward, &later.damaged[..]), (Some(0.5), &["observation"][..]));
            let items = later.observation.as_ref().unwrap().as_list().unwrap();
            assert_eq!(items.len(), index + 1, "one by one: what is lost is marked, what is new is there");
            assert_eq!(items[index], history(index + 1, 300).as_list().unwrap()[index]);
            assert!(items[..3].iter().all(|item| matches!(item, Value::Lost(_))));
        }
        assert!(!found.is_whole());
    }
}

/// Records that nobody can name any more leave a gap in the sequence, and that is told.
#[test]
fn a_gap_in_the_sequence_is_told() {
    let store = TestStore::new("gap");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    record_steps(&mut maker, &bind, 0..2);
    maker.seal();
    maker.next_segment(None);
    maker.forget();
    record_steps(&mut maker, &bind, 2..4);
    maker.seal();
    maker.next_segment(None);
    maker.forget();
    record_steps(&mut maker, &bind, 4..6);
    maker.save(&store);
    std::fs::remove_file(store.file(&crate::segment::names::segment_path(&maker.writer, 1))).unwrap();
    let found = catalog(&store, Liveness::Dead).reader(&key(&maker, &bind)).unwrap().read().unwrap();
    assert_eq!(found.gaps, [Gap { from: 2, to: 4 }]);
    assert_eq!(found.steps.iter().map(|step| step.index).collect::<Vec<_>>(), [0, 1, 4, 5]);
}

/// An intent and its result are one step; a call and a note keep their places; a turn without a result is pending.
#[test]
fn turns_are_folded_into_steps() {
    let store = TestStore::new("turns");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    let index = |index: i64| (fields::INDEX, Value::Int(index));
    maker.record(&bind, Kind::First, &[index(0), (fields::OBSERVATION, "o0".into())]);
    maker.record(
        &bind,
        Kind::Intent,
        &[index(1), (fields::ACTION, "a1".into()), (fields::AGENT, "me".into())],
    );
    maker.record(&bind, Kind::Call, &[index(1), (fields::NAME, "llm".into()), (fields::RESULT, "r".into())]);
    let result = [index(1), (fields::OBSERVATION, "o1".into()), (fields::REWARD, Value::Null)];
    maker.record(&bind, Kind::Result, &result);
    maker.record(&bind, Kind::Note, &[(fields::NAME, "score".into()), (fields::VALUE, Value::Float(1.0))]);
    maker.record(&bind, Kind::Intent, &[index(2), (fields::ACTION, "a2".into())]);
    maker.record(&bind, Kind::Discard, &[index(2), (fields::REASON, "no".into())]);
    maker.record(&bind, Kind::Item, &[index(2), (fields::VALUE, "item".into())]);
    maker.record(&bind, Kind::Intent, &[index(3), (fields::ACTION, "a3".into())]);
    maker.commit_synced();
    maker.save(&store);
    let found = catalog(&store, Liveness::Dead).reader(&key(&maker, &bind)).unwrap().read().unwrap();
    assert_eq!(found.steps.len(), 3);
    assert_eq!(
        (found.steps[0].kind, found.steps[0].observation.clone()),
        (StepKind::First, Some("o0".into()))
    );
    let turn = &found.steps[1];
    assert_eq!((turn.index, &turn.action, &turn.observation), (1, &Some("a1".into()), &Some("o1".into())));
    assert_eq!((turn.agent.as_deref(), turn.reward), (Some("me"), None));
    assert_eq!(found.steps[2].value, Some("item".into()));
    assert_eq!(found.calls[0].result, Some("r".into()));
    assert_eq!(found.notes[0].value, Some(Value::Float(1.0)));
    assert_eq!(found.discarded[0].reason.as_deref(), Some("no"));
    assert_eq!(found.discarded[0].step.as_ref().unwrap().action, Some("a2".into()));
    assert_eq!(found.pending.unwrap().action, Some("a3".into()));
    assert_eq!(found.end, None);
}

/// What says LAST of itself is LAST, and the end of an attempt that crashed makes no step the last.
#[test]
fn only_a_true_end_makes_a_step_the_last() {
    for (why, said, kind) in [
        ("finished", None, StepKind::Last),
        ("truncated", None, StepKind::Last),
        ("errored", None, StepKind::Mid),
        ("finished", Some(1), StepKind::Mid),
        ("errored", Some(2), StepKind::Last),
    ] {
        let store = TestStore::new("last");
        let mut maker = LogMaker::new(1);
        let bind = attempt(1);
        let mut values = step(1, "o".into());
        if let Some(said) = said {
            values.insert(2, (fields::STEP_KIND, Value::Int(said)));
        }
        maker.record(&bind, Kind::Step, &values);
        maker.record(&bind, Kind::Note, &[(fields::NAME, "n".into())]);
        maker.record(&bind, Kind::End, &end(why));
        maker.commit_synced();
        maker.save(&store);
        let catalog = catalog(&store, Liveness::Dead);
        let mut reader = catalog.reader(&key(&maker, &bind)).unwrap();
        assert_eq!(reader.read().unwrap().steps[0].kind, kind, "{why} {said:?}");
        let order: Vec<bool> =
            reader.events().map(|event| matches!(event.unwrap(), EpisodeEvent::Step(_))).collect();
        assert_eq!(order, [true, false, false], "the order is that of the records");
    }
}

/// A record of many chunks is one record.
#[test]
fn a_step_larger_than_a_frame_comes_back() {
    let store = TestStore::new("chunks");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    let big = Value::bytes(
        (0..5 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
    );
    maker.record(&bind, Kind::Step, &step(0, big.clone()));
    maker.commit_synced();
    maker.record(&bind, Kind::Step, &step(1, Value::list([big.clone(), "more".into()])));
    maker.commit_synced();
    maker.seal();
    maker.save(&store);
    let found = catalog(&store, Liveness::Dead).reader(&key(&maker, &bind)).unwrap().read().unwrap();
    assert_eq!(found.steps[0].observation, Some(big.clone()));
    assert_eq!(found.steps[1].observation, Some(Value::list([big, "more".into()])));
    assert!(found.is_whole());
}

/// A header that does not validate costs nothing but the header, since its salt stands there twice.
#[test]
fn a_flip_in_a_header_does_not_cost_the_segment() {
    let store = TestStore::new("header");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    record_steps(&mut maker, &bind, 0..3);
    maker.save(&store);
    let path = store.file(&crate::segment::names::segment_path(&maker.writer, 0));
    let data = std::fs::read(&path).unwrap();
    for at in 0..128 {
        let mut flipped = data.clone();
        flipped[at] ^= 4;
        std::fs::write(&path, &flipped).unwrap();
        let catalog = catalog(&store, Liveness::Unknown);
        assert_eq!(catalog.troubles().len(), 1, "byte {at}");
        let found = catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap();
        assert_steps(&found, 3);
    }
}

/// The lists of an index are read late; if they are damaged, the frames are asked.
#[test]
fn damaged_lists_are_made_up_for_by_a_scan() {
    let store = TestStore::new("lists");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    record_steps(&mut maker, &bind, 0..4);
    maker.seal();
    maker.save(&store);
    let path = store.file(&crate::segment::names::segment_path(&maker.writer, 0));
    let mut data = std::fs::read(&path).unwrap();
    let catalog_before = catalog(&store, Liveness::Unknown);
    let log = catalog_before.logs().next().unwrap();
    let Contents::Sealed(index) = log.segment(0).unwrap().contents() else { panic!("it is sealed") };
    data[index.trailer.lists as usize + 25] ^= 1;
    std::fs::write(&path, &data).unwrap();
    let found = catalog(&store, Liveness::Unknown).reader(&key(&maker, &bind)).unwrap().read().unwrap();
    assert_steps(&found, 4);
    let scan: Arc<dyn ScanUnsealed> = Arc::new(recovery(Liveness::Unknown));
    let mut follow = Follow::store(store.storage(), scan, FollowFrom::Start).unwrap();
    let mut told = 0;
    while follow.next(Duration::ZERO).unwrap().is_some() {
        told += 1;
    }
    assert_eq!(told, 4);
}

/// A segment of a later version is refused by name, not misread.
#[test]
fn a_newer_segment_is_refused() {
    let store = TestStore::new("newer");
    let mut maker = LogMaker::new(1);
    maker.record(&attempt(1), Kind::Begin, &begin("t"));
    maker.commit_synced();
    maker.save(&store);
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    let mut data = std::fs::read(store.file(&path)).unwrap();
    data[8] = 2;
    let crc = crc32c::crc32c(&data[..124]);
    data[124..128].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(store.file(&path), &data).unwrap();
    let error = Catalog::over(store.storage(), Arc::new(recovery(Liveness::Dead))).unwrap_err();
    assert!(error.to_string().contains(&path) && error.to_string().contains("format 2"), "{error}");
}

/// Whatever a later writer adds above 0x80 is passed over; what it adds below must be understood, or refused.
#[test]
fn a_refresh_sees_what_is_new_and_nothing_else_changes() {
    let store = TestStore::new("refresh");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.save(&store);
    let alive = Arc::new(AtomicU8::new(1));
    let asked = Arc::clone(&alive);
    let liveness =
        move |_: &_| if asked.load(Ordering::Relaxed) == 1 { Liveness::Live } else { Liveness::Dead };
    let scan = Arc::new(Recovery::new(Box::new(liveness)));
    let mut catalog = Catalog::over(store.storage(), scan).unwrap();
    let mut done = 0;
    for round in 0..6 {
        record_steps(&mut maker, &bind, done..done + 2);
        done += 2;
        if round == 2 {
            maker.seal();
            maker.save(&store);
            catalog.refresh().unwrap();
            maker.next_segment(None);
        }
        maker.save(&store);
        catalog.refresh().unwrap();
        let found = catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap();
        assert_steps(&found, done);
        assert_eq!(catalog.attempts().unwrap()[0].summary.steps, done as u64);
    }
    maker.record(&bind, Kind::Step, &step(done, history(done as usize + 1, 300)));
    maker.commit();
    maker.save(&store);
    catalog.refresh().unwrap();
    assert_steps(&catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap(), done);
    alive.store(0, Ordering::Relaxed);
    catalog.refresh().unwrap();
    assert_steps(&catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap(), done + 1);
    // It only seems dead: what it records all the same is seen.
    maker.record(&bind, Kind::Step, &step(done + 1, history(done as usize + 2, 300)));
    maker.commit();
    maker.save(&store);
    catalog.refresh().unwrap();
    assert_steps(&catalog.reader(&key(&maker, &bind)).unwrap().read().unwrap(), done + 2);
    assert!(!catalog.logs().any(|log| log.is_finished()), "nobody said that it is closed");
}

/// If two writers recorded the same attempt, the one that the claim names counts.
#[test]
fn the_claim_says_whose_attempt_counts() {
    let store = TestStore::new("claim");
    let bind = attempt(0xab);
    for writer in [1, 2] {
        let mut maker = LogMaker::new(writer);
        maker.record(&bind, Kind::Begin, &begin("t"));
        maker.commit_synced();
        maker.save(&store);
    }
    let path = format!("claims/ab/{}.0.claim", bind.id);
    let writer = keepstep_format::Id([2; 16]);
    let storage = store.storage();
    std::fs::create_dir_all(store.file("claims")).unwrap();
    let card = [(fields::WRITER, Value::bytes(writer.0))];
    let kind = keepstep_format::card::kind::CLAIM;
    crate::segment::cards::publish_card(&storage, &path, kind, &card).unwrap();
    let catalog = catalog(&store, Liveness::Dead);
    assert_eq!(catalog.attempts_at(&bind.id).unwrap().len(), 2);
    assert_eq!(catalog.find(&bind.id, 0).unwrap().writer, writer);
    assert!(catalog.find(&bind.id, 1).is_err());
}
