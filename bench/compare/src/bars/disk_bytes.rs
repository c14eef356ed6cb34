//! What the store adds to each byte of payload, in all of its files once it is closed.

use super::Got;
use crate::engine::{EngineFactory, EngineRuler};
use crate::measure;
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::RECORD_BYTES;

/// A field's name and the value's own head may be counted as payload; no more than this per record.
const ENCODING_BYTES_MAX: f64 = 32.0;

pub fn with_64_writers(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    measure_with(settings, factory, 64, 1500, "disk-64")
}

pub fn with_one_writer(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    measure_with(settings, factory, 1, 8192, "disk-1")
}

fn measure_with(
    settings: &Settings,
    factory: &dyn EngineFactory,
    writers: usize,
    records_each: u64,
    name: &'static str,
) -> Vec<Got> {
    let scratch = Scratch::new(&settings.data_dir);
    let ruler = EngineRuler::open(factory, scratch.path(), writers);
    measure::write_each(&ruler, writers, records_each);
    let stats = ruler.close();

    let records = writers as u64 * records_each;
    let payload_bytes = stats.payload_bytes as f64;
    let encoded = payload_bytes / records as f64;
    let plain = RECORD_BYTES as f64;
    assert!(
        (plain..=plain + ENCODING_BYTES_MAX).contains(&encoded),
        "the engine says that a record of {plain} random bytes has {encoded:.1} bytes of payload"
    );
    let disk_bytes = bytes_below(scratch.path()) as f64;
    println!(
        "  {records} records: {:.1} bytes each on disk, {encoded:.1} of them payload",
        disk_bytes / records as f64
    );
    vec![Got { name, value: disk_bytes / payload_bytes }]
}
