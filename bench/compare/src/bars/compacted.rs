//! After compacting: how small real rollouts get, how many places an episode is read from, and what compacting 1 GiB costs.

use std::io::Write;
use std::path::Path;

use super::Got;
use super::gibibyte::build;
use super::memory::peak_resident_kib;
use super::rollouts::record_all;
use crate::child::{self, Job};
use crate::engine::EngineFactory;
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::live::{GIBIBYTE, Store};
use crate::workload::rollouts::{Rollout, load};

const QUICK: Store = Store { bytes: 128 << 20, ..GIBIBYTE };

pub fn rollouts_and_places(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let Some(rollouts) = load(&settings.rollouts_dir) else {
        println!("  no *.jsonl in {}", settings.rollouts_dir.display());
        println!("  hint: point KEEPSTEP_ROLLOUTS at a folder of rollouts");
        return Vec::new();
    };
    let scratch = Scratch::new(&settings.data_dir);
    record_all(factory, scratch.path(), &rollouts);
    let before = bytes_below(scratch.path());
    if !factory.compact(scratch.path()) {
        println!("  this engine does not compact");
        return Vec::new();
    }
    let after = bytes_below(scratch.path());
    let (jsonl, packed) = zstd_3(&rollouts);
    let places = (0..rollouts.len() as u64).filter_map(|task| factory.places(scratch.path(), task)).max();
    println!(
        "  {jsonl} bytes as full-history JSONL, {packed} of them after zstd -3; {before} stored, {after} compacted"
    );
    let mut got = vec![Got { name: "compact-rollouts-vs-zstd3", value: after as f64 / packed as f64 }];
    got.extend(places.map(|most| Got { name: "compact-read-places", value: most as f64 }));
    got
}

/// All lines as one file through `zstd -3`: bytes before and after.
fn zstd_3(rollouts: &[Rollout]) -> (u64, u64) {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("could not begin a zstd frame");
    let mut bytes = 0;
    for turn in rollouts.iter().flat_map(Rollout::turns) {
        let line = serde_json::json!({ "prompt": turn.prompt, "response": turn.response }).to_string();
        bytes += line.len() as u64 + 1;
        encoder
            .write_all(line.as_bytes())
            .and_then(|()| encoder.write_all(b"\n"))
            .expect("could not compress");
    }
    (bytes, encoder.finish().expect("could not end a zstd frame").len() as u64)
}

pub fn peak_of_a_gibibyte(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let store = if settings.quick { QUICK } else { GIBIBYTE };
    let scratch = Scratch::new(&settings.data_dir);
    build(factory, scratch.path(), store);
    let before = bytes_below(scratch.path());
    let said = child::output(factory, Job::Compact, scratch.path(), settings.quick);
    let Ok(peak_kib) = said.trim().parse::<f64>() else {
        println!("  this engine does not compact");
        return Vec::new();
    };
    let peak_mb = peak_kib * 1024.0 / 1e6;
    println!("  {before} bytes became {}: peak {peak_mb:.0} MB", bytes_below(scratch.path()));
    vec![Got { name: "compact-1gib-rss", value: peak_mb }]
}

/// The child's part: compacts, and prints the peak of its resident memory in KiB.
pub fn compact_and_report(factory: &dyn EngineFactory, dir: &Path) {
    if factory.compact(dir) {
        println!("{}", peak_resident_kib());
    } else {
        println!("none");
    }
}
