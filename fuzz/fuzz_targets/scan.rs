//! Any bytes, forged frames and broken logs are scanned: nothing is invented, and windows see what the whole sees.
#![no_main]

use crc32c::crc32c;
use keepstep_format::Id;
use keepstep_format::commit::{Listed, put_commit_body};
use keepstep_format::footer::{Footer, put_index};
use keepstep_format::frame::{Flags, FrameSpec, Kind, join, put_frame};
use keepstep_format::scan::{Rules, SegmentScan, Walk, scan_segment};
use keepstep_format::segment::{SegmentHeader, Trailer};
use libfuzzer_sys::fuzz_target;

const SALT: u64 = 0x0123_4567_89ab_cdef;

fn header() -> SegmentHeader {
    let (store, writer) = (Id::NONE, Id::NONE);
    SegmentHeader { store, writer, number: 0, salt: SALT, created: 0, voids: None, sealed: None }
}

fuzz_target!(|input: (u8, bool, Option<u16>, Option<u16>, u8, &[u8])| {
    let (sort, complete, voided, sealed, window_bytes, script) = input;
    let (voided_from, sealed_bytes) = (voided.map(u64::from), sealed.map(u64::from));
    let rules = Rules { trailer: None, complete, voided_from, sealed_bytes };
    let mut bytes = header().encode().to_vec();
    match sort % 3 {
        0 => bytes.extend_from_slice(script),
        1 => forge(&mut bytes, script),
        _ => {
            let (original, broken) = write_and_break(script);
            check_against(&original, &broken, rules);
            bytes = broken;
        }
    }
    let found = scan_segment(&bytes, &header(), rules);
    check(&bytes, &found);
    assert_eq!(by_windows(&bytes, rules, window_bytes as usize + 1), found);
    follow(&bytes, window_bytes as usize + 1);
});

/// Takes the script as frames, and makes their checksums hold: what a program may write that breaks the rules.
fn forge(bytes: &mut Vec<u8>, script: &[u8]) {
    bytes.extend_from_slice(script);
    let mut at = 128;
    while at + 36 <= bytes.len() {
        if bytes[at] & 0xf0 == 0xf0 {
            at += 8;
            continue;
        }
        let flags = bytes[at + 1];
        bytes[at + 2..at + 4].fill(0);
        bytes[at + 5..at + 8].fill(0);
        let mut body_at = at + 24;
        if flags & 1 != 0 {
            // Mostly small and a multiple of 8, so that some make sense.
            bytes[body_at] &= 0xf8;
            bytes[body_at + 2..body_at + 8].fill(0);
            body_at += 8;
        }
        if flags & 4 != 0 {
            bytes[body_at + 1..body_at + 4].fill(0);
            body_at += 4 + bytes[body_at] as usize;
        }
        let body_end = body_at + bytes[at + 4] as usize;
        if body_end > bytes.len() {
            return;
        }
        // Some bodies stay damaged.
        if bytes[at + 16] & 3 != 0 {
            let crc = crc32c(&bytes[body_at..body_end]);
            bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        }
        let end = body_end.next_multiple_of(8).min(bytes.len());
        bytes[body_end..end].fill(0);
        let mut sum = [SALT.to_le_bytes(), (at as u64).to_le_bytes()].concat();
        sum.extend_from_slice(&bytes[at..at + 20]);
        sum.extend_from_slice(&bytes[at + 24..body_at]);
        bytes[at + 20..at + 24].copy_from_slice(&crc32c(&sum).to_le_bytes());
        at = end;
    }
}

/// Writes a log as the first half of the script says, and breaks it as the second half says.
fn write_and_break(script: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (acts, harms) = script.split_at(script.len() / 2);
    let mut bytes = header().encode().to_vec();
    let (mut synced_to, mut committed_to, mut batch) = (128, 128, Vec::new());
    for (seq, &act) in acts.iter().take(200).enumerate() {
        let (seq, len) = (seq as u32, act as usize >> 3);
        let plain =
            FrameSpec { kind: Kind::Step, flags: Flags::NONE, slot: 1, seq, synced_to: None, head: &[] };
        let body = vec![act; len];
        match act & 7 {
            0 | 1 => batch.push(put(&mut bytes, &plain, &body)),
            2 => batch.push(put(&mut bytes, &FrameSpec { head: &acts[..1], ..plain }, &body)),
            3 => {
                batch.push(put(&mut bytes, &FrameSpec { flags: Flags::MORE, ..plain }, &body));
                let chunk = FrameSpec { kind: Kind::Chunk, ..plain };
                put(&mut bytes, &FrameSpec { flags: Flags::MORE, ..chunk }, &body);
                put(&mut bytes, &chunk, &body);
            }
            4 => {
                put(&mut bytes, &FrameSpec { synced_to: Some(synced_to), ..plain }, &body);
                batch.clear();
                committed_to = bytes.len() as u64;
            }
            5 => synced_to = committed_to,
            _ => {
                let mut list = Vec::new();
                put_commit_body(&mut list, &std::mem::take(&mut batch));
                let commit =
                    FrameSpec { kind: Kind::Commit, slot: 0, seq: 0, synced_to: Some(synced_to), ..plain };
                put(&mut bytes, &commit, &list);
                committed_to = bytes.len() as u64;
            }
        }
    }
    if acts.len() % 2 == 1 {
        let end = bytes.len() as u64;
        put_index(&mut bytes, SALT, end, &Footer::default(), &[]);
    }
    let mut broken = bytes.clone();
    for harm in harms.chunks_exact(4).take(4) {
        let at = 128 + (usize::from(harm[0]) << 8 | usize::from(harm[1])) % (broken.len() - 127);
        match harm[2] % 4 {
            0 => broken.truncate(at),
            _ if at >= broken.len() => {}
            1 => broken[at] ^= harm[3],
            2 => {
                let end = (at + harm[3] as usize).min(broken.len());
                broken[at..end].fill(0);
            }
            _ => {
                let len = (harm[3] as usize).min(broken.len() - at);
                broken.copy_within(at..at + len, 128);
            }
        }
    }
    (bytes, broken)
}

fn put(bytes: &mut Vec<u8>, spec: &FrameSpec<'_>, body: &[u8]) -> Listed {
    let offset = bytes.len() as u64;
    put_frame(bytes, SALT, offset, spec, body, crc32c(body));
    Listed { offset, kind: spec.kind as u8, slot: spec.slot, seq: spec.seq }
}

/// What is read of a broken log is what was written; what is not read was reported.
fn check_against(original: &[u8], broken: &[u8], rules: Rules) {
    let found = scan_segment(broken, &header(), rules);
    for frame in &found.frames {
        let written = join(original, frame.offset as usize, 0, SALT);
        assert!(written.is_ok() && written == join(broken, frame.offset as usize, 0, SALT));
    }
    let unbroken = scan_segment(original, &header(), Rules { complete: true, ..Rules::default() });
    let reach = found.data_end.min(broken.len() as u64);
    for frame in unbroken.frames.iter().filter(|frame| frame.end() <= reach) {
        let is_found = found.frames.iter().any(|other| other.offset == frame.offset);
        let is_reported =
            found.holes.iter().any(|hole| hole.offset < frame.end() && frame.offset < hole.offset + hole.len);
        assert!(is_found != is_reported, "{frame:?} in {found:?}");
    }
}

/// What must hold of any scan: what exists and what is lost never overlap, and cover everything but what is newer.
fn check(bytes: &[u8], found: &SegmentScan) {
    let mut end = 128;
    for frame in &found.frames {
        assert!(frame.offset >= end && frame.end() <= found.valid_to);
        assert!(join(bytes, frame.offset as usize, 0, SALT).is_ok());
        end = frame.end();
    }
    let mut end = 128;
    for hole in &found.holes {
        assert!(hole.offset >= end);
        end = hole.offset + hole.len;
        assert!(!found.frames.iter().any(|frame| frame.offset < end && hole.offset < frame.end()));
        assert!(hole.lost.iter().all(|lost| (hole.offset..end).contains(&lost.offset)));
    }
    assert!(end <= found.data_end && found.synced_to <= found.valid_to && found.valid_to <= found.data_end);
    let covered: u64 = found.frames.iter().map(|frame| frame.bytes).sum::<u64>()
        + found.holes.iter().map(|hole| hole.len).sum::<u64>();
    assert!(found.newer.is_some() || covered == found.data_end - 128, "{found:?}");
}

fn by_windows(bytes: &[u8], rules: Rules, window_bytes: usize) -> SegmentScan {
    let trailer = Trailer::decode(bytes, bytes.len() as u64, SALT);
    let mut walk = Walk::new(&header(), Rules { trailer, ..rules });
    while let Some(wants) = walk.wants() {
        let from = (wants.offset as usize).min(bytes.len());
        let to = (from + wants.bytes.max(window_bytes)).min(bytes.len());
        walk.feed(&bytes[from..to], from as u64, to == bytes.len());
        if to == bytes.len() {
            break;
        }
    }
    walk.finish()
}

/// A reader that follows the file while it grows sees each durable record once, in order.
fn follow(bytes: &[u8], step: usize) {
    let mut walk = Walk::new(&header(), Rules::default());
    let mut end = 128;
    let mut len = 128;
    while len < bytes.len() {
        len = (len + step.max(bytes.len() / 64)).min(bytes.len());
        let Some(wants) = walk.wants() else { return };
        let from = (wants.offset as usize).min(len);
        walk.feed(&bytes[from..len], from as u64, false);
        let seen = walk.take();
        for frame in &seen.frames {
            assert!(frame.offset >= end && frame.end() <= seen.synced_to);
            assert!(join(bytes, frame.offset as usize, 0, SALT).is_ok());
            end = frame.end();
        }
    }
}
