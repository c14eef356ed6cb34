//! 4096 live episodes whose prompts grow, over many segments: what each new byte costs on disk.

use super::Got;
use super::rounds::record_with;
use crate::engine::{EngineFactory, Item, OpenOptions};
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::live::{GROWING, Live};

/// Small enough for a quick look, long enough for every history to be repeated.
const QUICK: Live = Live { episodes: 512, steps: 50, ..GROWING };

pub fn stored_per_new_byte(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let live = if settings.quick { QUICK } else { GROWING };
    let scratch = Scratch::new(&settings.data_dir);
    let engine = factory.open(scratch.path(), OpenOptions::default());
    record_with(&*engine, live, 0, |episode, news| {
        episode.hear(Item::Chat { role: "tool", content: news });
        episode.turn(&[]);
    });
    engine.close();

    let (stored, new) = (bytes_below(scratch.path()), live.new_bytes());
    println!("  {} episodes × {} steps: {new} new bytes, {stored} stored", live.episodes, live.steps);
    vec![Got { name: "size-live-4096x200", value: stored as f64 / new as f64 }]
}
