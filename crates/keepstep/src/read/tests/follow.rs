use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keepstep_format::Id;
use keepstep_format::frame::Kind;

use crate::read::{Follow, FollowFrom, Followed, Item};
use crate::recover::Recovery;
use crate::segment::testing::*;
use crate::segment::{Liveness, ScanUnsealed};

/// Long enough for any machine; nobody waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(20);

fn scan(liveness: Liveness) -> Arc<dyn ScanUnsealed> {
    Arc::new(recovery(liveness))
}

fn seq(followed: &Followed) -> u32 {
    match &followed.item {
        Item::Record(record) => record.seq,
        other => panic!("{other:?}"),
    }
}

/// Follows from the start or from now, and sees each record once.
#[test]
fn a_follower_begins_where_it_is_told_to() {
    let store = TestStore::new("follow-from");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    for index in 0..3 {
        maker.record(&bind, Kind::Step, &step(index, "x".into()));
        maker.commit_synced();
    }
    append(&maker, &store);
    let mut all = Follow::store(store.storage(), scan(Liveness::Live), FollowFrom::Start).unwrap();
    let mut new = Follow::store(store.storage(), scan(Liveness::Live), FollowFrom::Now).unwrap();
    let mut other =
        Follow::attempt(store.storage(), scan(Liveness::Live), FollowFrom::Start, Id([9; 16]), 0).unwrap();
    for expected in 0..3 {
        assert_eq!(seq(&all.next(Duration::ZERO).unwrap().unwrap()), expected);
    }
    assert_eq!(all.next(Duration::ZERO).unwrap(), None);
    assert_eq!(new.next(Duration::ZERO).unwrap(), None);
    maker.record(&bind, Kind::Step, &step(3, "y".into()));
    maker.commit();
    append(&maker, &store);
    assert_eq!(new.next(Duration::ZERO).unwrap(), None, "not synced yet");
    maker.sync();
    maker.commit();
    append(&maker, &store);
    assert_eq!(seq(&all.next(Duration::ZERO).unwrap().unwrap()), 3);
    assert_eq!(seq(&new.next(Duration::ZERO).unwrap().unwrap()), 3);
    assert_eq!(other.next(Duration::ZERO).unwrap(), None);
}

/// A follower sleeps until something comes: through rotation, from new writers, and in the right order.
#[test]
fn a_follower_sees_everything_that_comes_in() {
    let store = Arc::new(TestStore::new("follow-all"));
    let mut follow = Follow::store(store.storage(), scan(Liveness::Live), FollowFrom::Start).unwrap();
    let writing = Arc::clone(&store);
    let thread = std::thread::spawn(move || {
        let mut makers = vec![LogMaker::new(1)];
        for index in 0..40 {
            if index == 13 {
                makers.push(LogMaker::new(2));
            }
            for maker in &mut makers {
                maker.record(&attempt(1), Kind::Step, &step(index, history(index as usize, 50)));
                maker.commit_synced();
                append(maker, &writing);
                if index % 10 == 9 {
                    maker.seal();
                    append(maker, &writing);
                    maker.next_segment(None);
                    append(maker, &writing);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let mut next = [0; 3];
    while next[1] < 40 || next[2] < 27 {
        let followed = follow.next(LONG).unwrap().expect("something comes");
        let writer = usize::from(followed.writer.0[0]);
        assert_eq!(seq(&followed), next[writer]);
        next[writer] += 1;
    }
    thread.join().unwrap();
    assert_eq!(follow.next(Duration::ZERO).unwrap(), None);
}

/// What a writer had not synced when it died is told once it is dead.
#[test]
fn a_follower_hears_of_a_death() {
    let store = TestStore::new("follow-death");
    let mut maker = LogMaker::new(1);
    maker.record(&attempt(1), Kind::Step, &step(0, "x".into()));
    maker.commit();
    append(&maker, &store);
    let is_dead = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_dead);
    let liveness = move |_: &Id| if asked.load(Ordering::Acquire) { Liveness::Dead } else { Liveness::Live };
    let scan = Arc::new(Recovery::new(Box::new(liveness)));
    let episode = attempt(1).id;
    let mut follow = Follow::attempt(store.storage(), scan, FollowFrom::Start, episode, 0).unwrap();
    assert_eq!(follow.next(Duration::ZERO).unwrap(), None);
    is_dead.store(true, Ordering::Release);
    assert_eq!(seq(&follow.next(LONG).unwrap().unwrap()), 0);
}

/// A caller that could not handle a gap yet took back the record before it, which it had been told of: that came twice.
#[test]
fn taking_a_gap_back_does_not_take_back_the_record_before_it() {
    let store = TestStore::new("follow-gap");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.record(&bind, Kind::Step, &step(0, "x".into()));
    maker.rewind(&bind, 5);
    maker.record(&bind, Kind::Step, &step(1, "x".into()));
    maker.commit_synced();
    append(&maker, &store);
    let mut follow = Follow::store(store.storage(), scan(Liveness::Live), FollowFrom::Start).unwrap();
    let mut next = || follow.next(Duration::ZERO).unwrap().map(|followed| followed.item);
    assert!(matches!(next(), Some(Item::Record(record)) if record.seq == 0));
    assert!(matches!(next(), Some(Item::Gap(gap)) if (gap.from, gap.to) == (1, 5)));
    follow.take_back();
    let mut next = || follow.next(Duration::ZERO).unwrap().map(|followed| followed.item);
    assert!(matches!(next(), Some(Item::Record(record)) if record.seq == 5));
    assert_eq!(next(), None);
}

/// A follower that is told to stop stops.
#[test]
fn a_follower_stops_when_told_to() {
    let store = TestStore::new("follow-stop");
    let mut follow = Follow::store(store.storage(), scan(Liveness::Live), FollowFrom::Start).unwrap();
    let stop = follow.stopper();
    let started = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stop.stop();
    });
    assert_eq!(follow.next(LONG).unwrap(), None);
    assert!(started.elapsed() < LONG, "it did not wait for the time to be over");
    thread.join().unwrap();
}

/// What is lost in the middle of a log is told as lost, and the rest follows.
#[test]
fn a_follower_tells_of_damage() {
    let store = TestStore::new("follow-damage");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    let mut places = Vec::new();
    for index in 0..4 {
        places.push(maker.record(&bind, Kind::Step, &step(index, "x".into())));
        maker.commit_synced();
    }
    let mut bytes = maker.segments()[0].1.clone();
    bytes[places[2] as usize + 30] ^= 1;
    store.write(&crate::segment::names::segment_path(&maker.writer, 0), &bytes);
    for liveness in [Liveness::Live, Liveness::Unknown, Liveness::Dead, Liveness::Dead] {
        let mut follow = Follow::store(store.storage(), scan(liveness), FollowFrom::Start).unwrap();
        let mut told = Vec::new();
        while let Some(followed) = follow.next(Duration::ZERO).unwrap() {
            told.push(match followed.item {
                Item::Record(record) => (record.seq, true),
                Item::Damaged(lost) => (lost.seq, false),
                Item::Gap(gap) => panic!("{gap:?}"),
            });
        }
        assert_eq!(told, [(0, true), (1, true), (2, false), (3, true)], "{liveness:?}");
    }
}

fn position(follow: &Follow) -> FollowFrom {
    FollowFrom::Behind(follow.position().clone())
}

fn seqs(follow: &mut Follow) -> Vec<u32> {
    std::iter::from_fn(|| follow.next(Duration::ZERO).unwrap()).map(|followed| seq(&followed)).collect()
}

/// A writer seemed to be gone, and was not: what it goes on to record is told, in its segment and in the next one.
#[test]
fn a_log_that_seemed_finished_is_followed_when_it_grows() {
    let store = TestStore::new("follow-undead");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.record(&bind, Kind::Step, &step(0, "x".into()));
    maker.commit_synced();
    append(&maker, &store);
    let mut follow = Follow::store(store.storage(), scan(Liveness::Dead), FollowFrom::Start).unwrap();
    assert_eq!(seqs(&mut follow), [0]);
    maker.record(&bind, Kind::Step, &step(1, "y".into()));
    maker.commit_synced();
    append(&maker, &store);
    assert_eq!(seqs(&mut follow), [1]);
    maker.seal();
    maker.next_segment(None);
    maker.record(&bind, Kind::Step, &step(2, "z".into()));
    maker.commit_synced();
    append(&maker, &store);
    assert_eq!(seqs(&mut follow), [2]);
    let mut again = Follow::store(store.storage(), scan(Liveness::Dead), position(&follow)).unwrap();
    assert_eq!(seqs(&mut again), Vec::<u32>::new());
}

/// What was told of a writer that seemed to be gone may be given up by it and written again, elsewhere: it was told.
#[test]
fn what_is_written_again_is_told_once_across_a_cursor() {
    let store = TestStore::new("follow-again");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.record(&bind, Kind::Step, &step(0, "x".into()));
    maker.commit_synced();
    let given_up = maker.offset();
    maker.record(&bind, Kind::Step, &step(1, "y".into()));
    maker.commit();
    append(&maker, &store);
    let mut follow = Follow::store(store.storage(), scan(Liveness::Unknown), FollowFrom::Start).unwrap();
    assert_eq!(seqs(&mut follow), [0, 1]);
    let before = position(&follow);
    maker.next_segment(Some((0, given_up)));
    maker.rewind(&bind, 1);
    maker.record(&bind, Kind::Step, &step(1, "y".into()));
    maker.record(&bind, Kind::Step, &step(2, "z".into()));
    maker.commit_synced();
    append(&maker, &store);
    let mut again = Follow::store(store.storage(), scan(Liveness::Live), before).unwrap();
    assert_eq!(seqs(&mut again), [2]);
    assert_eq!(seqs(&mut follow), [2]);
    for follow in [follow, again] {
        assert!(follow.position().unsettled.is_empty(), "nothing is left to be remembered");
    }
}
