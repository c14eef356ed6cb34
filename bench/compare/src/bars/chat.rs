//! A chat of 200 turns that nothing can compress: only what is new may cost.

use super::Got;
use crate::engine::{EngineFactory, Item, OpenOptions};
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::chat::{ASSISTANT, Chat, USER};

const CHAT: Chat = Chat { seed: 200, turns: 200 };

pub fn against_jsonl(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let scratch = Scratch::new(&settings.data_dir);
    let engine = factory.open(scratch.path(), OpenOptions::default());
    let mut episode = engine.begin(0);
    for turn in 0..CHAT.turns {
        episode.hear(Item::Chat { role: USER, content: &CHAT.question(turn) });
        let answer = CHAT.answer(turn);
        let reply = Item::Chat { role: ASSISTANT, content: &answer };
        episode.turn(&[reply]);
        episode.wait();
        episode.hear(reply);
    }
    episode.end();
    engine.close();

    let (stored, jsonl) = (bytes_below(scratch.path()), CHAT.jsonl_bytes());
    println!("  {} turns: {jsonl} bytes as full-history JSONL, {stored} stored", CHAT.turns);
    vec![Got { name: "size-chat-200", value: jsonl as f64 / stored as f64 }]
}
