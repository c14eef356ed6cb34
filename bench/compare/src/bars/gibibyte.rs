//! A store of 1 GiB in sealed segments: how long it takes to open it, and to read one episode out of it.

use std::path::Path;
use std::time::Instant;

use super::Got;
use super::rounds::record;
use crate::engine::{EngineFactory, OpenOptions};
use crate::measure::median_ms;
use crate::scratch::{Scratch, bytes_below, evict, warm};
use crate::settings::Settings;
use crate::workload::live::{GIBIBYTE, Store};
use crate::workload::random::Random;

const TIMES: usize = 9;
const QUICK: Store = Store { bytes: 128 << 20, ..GIBIBYTE };

pub fn open_and_read(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let store = if settings.quick { QUICK } else { GIBIBYTE };
    let scratch = Scratch::new(&settings.data_dir);
    build(factory, scratch.path(), store);
    let open_ms = time_open(factory, scratch.path(), store);
    let read_ms = time_read(factory, scratch.path(), store);
    println!(
        "  {} episodes in {} bytes: open and list {open_ms:.2} ms, read {} steps {read_ms:.2} ms",
        store.episodes(),
        bytes_below(scratch.path()),
        store.waves.steps
    );
    vec![Got { name: "open-1gib", value: open_ms }, Got { name: "read-100-steps", value: read_ms }]
}

pub fn build(factory: &dyn EngineFactory, dir: &Path, store: Store) {
    let engine = factory.open(dir, OpenOptions::default());
    for wave in 0..store.wave_count() {
        record(&*engine, store.waves, wave * store.waves.episodes);
    }
    engine.close();
}

/// Each time with the kernel's cache emptied, as after a restart of the machine.
fn time_open(factory: &dyn EngineFactory, dir: &Path, store: Store) -> f64 {
    let open = |()| {
        let start = Instant::now();
        let episodes = factory.read(dir).list();
        let took = start.elapsed();
        assert_eq!(episodes as u64, store.episodes(), "not all episodes are listed");
        took
    };
    median_ms(TIMES, || evict(dir), open)
}

/// Warm is the kernel's cache; each time another episode, so that no cache of the engine's helps.
fn time_read(factory: &dyn EngineFactory, dir: &Path, store: Store) -> f64 {
    warm(dir);
    let reader = factory.read(dir);
    let mut random = Random::new(1);
    let read = |task| {
        let start = Instant::now();
        let steps = reader.read(task);
        let took = start.elapsed();
        let expected: Vec<Vec<u8>> =
            (0..store.waves.steps).map(|step| store.waves.news(task, step)).collect();
        assert!(steps == expected, "episode {task} does not read back as it was recorded");
        took
    };
    median_ms(TIMES, || random.next() % store.episodes(), read)
}
