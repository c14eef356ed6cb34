//! Real rollouts, turn by turn with the whole history as prompt: how much smaller than the same steps as JSONL.

use std::path::Path;

use super::Got;
use crate::engine::{EngineFactory, Item, OpenOptions};
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::rollouts::{Rollout, load};

pub fn against_jsonl(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let Some(rollouts) = load(&settings.rollouts_dir) else {
        println!("  no *.jsonl in {}", settings.rollouts_dir.display());
        println!("  hint: point KEEPSTEP_ROLLOUTS at a folder of rollouts");
        return Vec::new();
    };
    let scratch = Scratch::new(&settings.data_dir);
    record_all(factory, scratch.path(), &rollouts);

    let stored = bytes_below(scratch.path());
    let jsonl: u64 = rollouts.iter().map(Rollout::jsonl_bytes).sum();
    let turns: usize = rollouts.iter().map(|rollout| rollout.turns().count()).sum();
    println!(
        "  {} rollouts, {turns} turns: {jsonl} bytes as full-history JSONL, {stored} stored",
        rollouts.len()
    );
    vec![Got { name: "size-rollouts", value: jsonl as f64 / stored as f64 }]
}

/// Records each rollout as an episode, turn by turn with the whole history as prompt.
pub fn record_all(factory: &dyn EngineFactory, dir: &Path, rollouts: &[Rollout]) {
    let engine = factory.open(dir, OpenOptions::default());
    for (task, rollout) in rollouts.iter().enumerate() {
        let mut episode = engine.begin(task as u64);
        let mut heard = 0;
        for turn in rollout.turns() {
            turn.prompt[heard..].iter().for_each(|item| episode.hear(Item::Json(item)));
            heard = turn.prompt.len();
            let response: Vec<Item<'_>> = turn.response.iter().map(Item::Json).collect();
            episode.turn(&response);
            episode.wait();
        }
        episode.end();
    }
    engine.close();
}
