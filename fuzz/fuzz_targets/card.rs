//! Cards, beats, segment headers and `keepstep.json` are refused, or read; what is read is written again as it was.
#![no_main]

use keepstep_format::Id;
use keepstep_format::card::{Beat, Card, CardError, parse_store_json, store_json};
use keepstep_format::segment::{SegmentHeader, Trailer};
use libfuzzer_sys::fuzz_target;

const STORE: Id = Id([5; 16]);
const PATH: &str = "claims/ab/some.claim";

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (sort, mut bytes) = input;
    match sort % 6 {
        0 => {
            let _ = Card::decode(&bytes, &STORE, PATH);
        }
        1 => {
            // With its magic and a checksum that holds, so that what stands behind them is reached.
            if bytes.len() < 24 {
                return;
            }
            bytes[..8].copy_from_slice(b"KEEPCARD");
            let mut sum = [&STORE.0[..], PATH.as_bytes()].concat();
            sum.extend_from_slice(&bytes[..20]);
            bytes[20..24].copy_from_slice(&crc32c::crc32c(&sum).to_le_bytes());
            match Card::decode(&bytes, &STORE, PATH) {
                Ok(card) => assert_eq!(Card::encode(&STORE, PATH, card.kind, &card.body), bytes),
                Err(error) => assert_ne!(error, CardError::NotACard),
            }
        }
        2 => {
            if let Some(beat) = Beat::decode(&bytes) {
                assert_eq!(beat.encode()[..], bytes);
            }
        }
        3 => {
            let Ok(text) = std::str::from_utf8(&bytes) else { return };
            if let Ok((store, created)) = parse_store_json(text) {
                assert_eq!(parse_store_json(&store_json(&store, created)), Ok((store, created)));
            }
        }
        4 => {
            bytes.resize(128, 0);
            bytes[..8].copy_from_slice(b"KEEPSEG1");
            let crc = crc32c::crc32c(&bytes[..124]);
            bytes[124..].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = SegmentHeader::decode(&bytes) {
                assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
            }
        }
        _ => {
            bytes.resize(40, 0);
            bytes[..8].copy_from_slice(b"KEEPEND1");
            let sum = [&7u64.to_le_bytes()[..], &bytes[..36]].concat();
            bytes[36..].copy_from_slice(&crc32c::crc32c(&sum).to_le_bytes());
            if let Some(trailer) = Trailer::decode(&bytes, u64::MAX, 7) {
                assert_eq!(trailer.encode(7)[..], bytes);
            }
        }
    }
});
