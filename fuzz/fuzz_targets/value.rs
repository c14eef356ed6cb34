//! The body of a record is refused, or read; what is read without loss is written again, and reads the same.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use keepstep_format::decode::{Bodies, Body, read_fields, read_value};
use keepstep_format::encode::{Encoder, NothingKnown};
use keepstep_format::frame::{Place, Reference};
use keepstep_format::hash::ContentKey;
use keepstep_format::rehash::Rehash;
use keepstep_format::value::Value;
use libfuzzer_sys::fuzz_target;

/// A log whose records refer to one another in whatever way the fuzzer likes, also in circles.
struct Log(HashMap<u64, Arc<Body>>);

impl Bodies for Log {
    fn body(&mut self, _: u64, offset: u64) -> Option<Arc<Body>> {
        self.0.get(&offset).cloned()
    }

    fn unfolded_bytes_max(&self) -> u64 {
        16 << 20
    }
}

type Refers = (u8, u8, u8, u8);

fuzz_target!(|input: (Vec<(Vec<u8>, Vec<Refers>)>, bool)| {
    let (bodies, is_record) = input;
    let count = bodies.len() as u64;
    if count == 0 || count > 8 {
        return;
    }
    let reference = |(record, inner, base, take): &Refers| Reference {
        place: Place {
            segment: 0,
            offset: 128 + 8 * (u64::from(*record) % count),
            inner: u64::from(*inner),
            base: u32::from(*base),
        },
        take: u64::from(*take),
        hash: [*record; 16],
    };
    let mut log = Log(HashMap::new());
    for (number, (raw, refers)) in bodies.into_iter().enumerate() {
        // Unfolding grows with the length of a body to the power of the links: small ones find the same faults.
        if raw.len() > 200 || refers.len() > 6 {
            return;
        }
        let references = refers.iter().map(reference).collect();
        log.0.insert(128 + 8 * number as u64, Arc::new(Body { raw, references }));
    }
    let first = log.0[&128].clone();
    if is_record {
        let _ = read_fields(&first, &mut log);
        return;
    }
    let Ok(value) = read_value(&first, &mut log) else { return };
    if value.has_lost() {
        return;
    }
    let key = ContentKey::new(&[1; 16]);
    let mut encoder = Encoder::value(&key, &NothingKnown);
    // What unfolds to something deeper than can be written is refused on the way in.
    if encoder.put(&value).is_err() {
        return;
    }
    let again = Body { raw: encoder.finish().body, references: Vec::new() };
    let read: Value = read_value(&again, &mut log).expect("what was written is read");
    assert!(read == value);
    assert_eq!(Rehash::new(&key).value(&read), Rehash::new(&key).value(&value));
});
