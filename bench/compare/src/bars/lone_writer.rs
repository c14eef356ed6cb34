//! What one writer waits for an acknowledgement, against a bare append and fdatasync.

use super::Got;
use super::throughput::opener;
use crate::engine::EngineFactory;
use crate::measure;
use crate::rulers::{BARE, Contender};
use crate::settings::Settings;
use crate::stats::Pairs;

pub fn p50_against_bare(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let open = opener(factory);
    let engine = Contender { name: factory.name(), open: &open };
    let pairs = Pairs::measure(
        settings.pairs,
        || measure::lone_p50_us(settings, engine),
        || measure::lone_p50_us(settings, BARE),
    );
    println!("  p50: {}", pairs.describe(engine.name, BARE.name, "µs"));
    vec![Got { name: "write-1-p50", value: pairs.ratio() }]
}
