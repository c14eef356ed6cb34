//! A small log, right and in six wrong ways: the right one passes, the simulator catches each of the others.

use super::*;

/// What the log leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    AckBeforeSync,
    NoDirectorySync,
    NoSalt,
    NoChecksum,
    RetriedSync,
    /// The salt must be safe before the first record, or stale records come back under their stale salt.
    HeaderNotSynced,
}

const RECORD_BYTES: usize = 200;
const HEAD_BYTES: usize = 20;

fn checksum(salt: u64, offset: u64, number: u64, body: &[u8]) -> u64 {
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    body.iter().fold(salt ^ offset.rotate_left(32) ^ number.rotate_left(17) ^ 0xcbf2_9ce4_8422_2325, fold)
}

fn record(salt: u64, offset: u64, number: u64) -> Vec<u8> {
    let body = [(number * 7 % 251) as u8 + 1; RECORD_BYTES - HEAD_BYTES];
    let sum = checksum(salt, offset, number, &body);
    [b"RECD", &number.to_le_bytes()[..], &sum.to_le_bytes(), &body].concat()
}

/// Writes two segments of records, each acknowledged by an event with its number.
fn write(wrong: Wrong) -> SimDisk {
    let (sim, disk) = start(9);
    if wrong == Wrong::RetriedSync {
        sim.faults()
            .plan(super::super::Fault::new(super::super::On::Sync, super::super::Errno::Eio).after(2));
    }
    let mut number = 0;
    for segment in 0..2 {
        let file = disk.create_new(&format!("{segment}.seg")).unwrap();
        if wrong != Wrong::NoDirectorySync {
            disk.sync_dir("").unwrap();
        }
        let mut salt = [0; 8];
        disk.random(&mut salt).unwrap();
        if wrong == Wrong::NoSalt {
            salt = [7; 8];
        }
        file.write_at(&[b"TOY1TOY1", &salt[..]].concat(), 0).unwrap();
        if wrong != Wrong::HeaderNotSynced {
            file.sync().unwrap();
        }
        let mut offset = 16;
        for _ in 0..2 {
            let batch = number..number + 4;
            let place = |number: u64| offset + (number - batch.start) * RECORD_BYTES as u64;
            let bytes: Vec<u8> = batch
                .clone()
                .flat_map(|number| record(u64::from_le_bytes(salt), place(number), number))
                .collect();
            file.write_at(&bytes, offset).unwrap();
            if wrong == Wrong::AckBeforeSync {
                batch.clone().for_each(|number| sim.event(number));
            }
            if file.sync().is_err() {
                file.sync().unwrap();
            }
            batch.clone().for_each(|number| sim.event(number));
            number = batch.end;
            offset += bytes.len() as u64;
        }
    }
    sim
}

/// The records of all segments up to the first that is not whole, per segment.
fn read(disk: &SimProcess, wrong: Wrong) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    for segment in 0..2 {
        let Ok(bytes) = read_file(disk, &format!("{segment}.seg")) else { continue };
        let Some((header, records)) = bytes.split_at_checked(16) else { continue };
        let salt = u64::from_le_bytes(header[8..].try_into().unwrap());
        for (at, record) in records.chunks_exact(RECORD_BYTES).enumerate() {
            let word = |from: usize| u64::from_le_bytes(record[from..from + 8].try_into().unwrap());
            let (number, body) = (word(4), &record[HEAD_BYTES..]);
            let offset = 16 + (at * RECORD_BYTES) as u64;
            if wrong != Wrong::NoChecksum && word(12) != checksum(salt, offset, number, body) {
                break;
            }
            found.push((number, body.to_vec()));
        }
    }
    found
}

/// Which states to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Counting,
    Chance,
}

/// The first state that breaks a promise: acknowledged and lost, or never written.
fn broken_state(wrong: Wrong, by: By) -> Option<String> {
    let trace = write(wrong).trace();
    for cut in 0..trace.cuts() {
        let point = trace.cut(cut);
        let states = if by == By::Counting { point.state_count() } else { RANDOM };
        for index in 0..states {
            let state = if by == By::Counting { point.state(index) } else { point.random_state(index) };
            let found = read(&state.process(), wrong);
            let is_there = |event: &u64| found.iter().any(|(number, _)| number == event);
            let is_true = |(number, body): &(u64, Vec<u8>)| {
                let twice = found.iter().filter(|(other, _)| other == number).count() > 1;
                *number < 16 && !twice && body[..] == record(0, 0, *number)[HEAD_BYTES..]
            };
            if !trace.events_before(cut).iter().all(is_there) || !found.iter().all(is_true) {
                return Some(trace.explain(cut, &state));
            }
        }
    }
    None
}

/// What the broken state must look like, by counting and by chance.
fn assert_caught(wrong: Wrong, words: &str) {
    for by in [By::Counting, By::Chance] {
        let broken = broken_state(wrong, by);
        assert!(
            broken.as_ref().is_some_and(|broken| broken.contains(words)),
            "{wrong:?}, {by:?}: {broken:?}"
        );
    }
}

#[test]
fn a_careful_log_survives_every_cut() {
    assert_eq!(broken_state(Wrong::Nothing, By::Counting), None);
    assert_eq!(broken_state(Wrong::Nothing, By::Chance), None);
}

#[test]
fn acknowledging_before_the_sync_is_caught() {
    assert_caught(Wrong::AckBeforeSync, "after \"event 0\"");
}

#[test]
fn a_missing_directory_sync_is_caught() {
    assert_caught(Wrong::NoDirectorySync, "the name is lost");
}

#[test]
fn a_missing_salt_is_caught() {
    assert_caught(Wrong::NoSalt, "has stale bytes");
}

#[test]
fn a_missing_checksum_is_caught() {
    assert_caught(Wrong::NoChecksum, "sector");
}

#[test]
fn retrying_a_failed_sync_is_caught() {
    assert_caught(Wrong::RetriedSync, "after \"event 4\"");
}

#[test]
fn a_header_that_is_not_synced_first_is_caught() {
    assert_caught(Wrong::HeaderNotSynced, "sector 0 (byte 0) has stale bytes");
}
