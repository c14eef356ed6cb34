//! Records made durable per second by many writers at once, against each ruler in turn.

use std::path::Path;

use super::Got;
use crate::engine::{EngineFactory, EngineRuler};
use crate::measure;
use crate::rulers::{Contender, FJALL, RAW, REDB, Ruler, SQLITE_BATCHED, SQLITE_COMMIT};
use crate::settings::Settings;
use crate::stats::Pairs;

pub fn at_64_against_raw(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 64, RAW, "write-64-raw")
}

pub fn at_64_against_sqlite_batched(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 64, SQLITE_BATCHED, "write-64-sqlite-batched")
}

pub fn at_64_against_sqlite_commit(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 64, SQLITE_COMMIT, "write-64-sqlite-commit")
}

pub fn at_64_against_fjall(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 64, FJALL, "write-64-fjall")
}

pub fn at_64_against_redb(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 64, REDB, "write-64-redb")
}

pub fn at_512_against_raw(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    against(settings, factory, 512, RAW, "write-512-raw")
}

/// More writers must not make it slower.
pub fn at_512_against_64(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let open = opener(factory);
    let engine = Contender { name: factory.name(), open: &open };
    let pairs = Pairs::measure(
        settings.pairs,
        || measure::throughput(settings, engine, 512),
        || measure::throughput(settings, engine, 64),
    );
    println!("  {}", pairs.describe("512 writers", "64 writers", "/s"));
    vec![Got { name: "write-512-64", value: pairs.ratio() }]
}

fn against(
    settings: &Settings,
    factory: &dyn EngineFactory,
    writers: usize,
    ruler: Contender,
    name: &'static str,
) -> Vec<Got> {
    let open = opener(factory);
    let engine = Contender { name: factory.name(), open: &open };
    let pairs = Pairs::measure(
        settings.pairs,
        || measure::throughput(settings, engine, writers),
        || measure::throughput(settings, ruler, writers),
    );
    println!("  {}", pairs.describe(engine.name, ruler.name, "/s"));
    vec![Got { name, value: pairs.ratio() }]
}

/// Opens the engine as if it were one more ruler.
pub fn opener(factory: &dyn EngineFactory) -> impl Fn(&Path, usize) -> Box<dyn Ruler> + Sync {
    move |dir: &Path, writers| Box::new(EngineRuler::open(factory, dir, writers)) as Box<dyn Ruler>
}
