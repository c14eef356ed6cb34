//! Chats that nothing can compress: only what is new may cost, also where the oldest messages are dropped.

use super::Got;
use crate::engine::{EngineFactory, Item, OpenOptions};
use crate::scratch::{Scratch, bytes_below};
use crate::settings::Settings;
use crate::workload::chat::{ASSISTANT, Chat, USER};
use crate::workload::random::fill_step;

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

const WINDOW: u64 = 400;
const WINDOW_STEPS: u64 = 660;
const WINDOW_MESSAGE_BYTES: usize = 300;

/// A window over a long chat: each step drops the oldest message and hears a new one.
pub fn window(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let scratch = Scratch::new(&settings.data_dir);
    let engine = factory.open(scratch.path(), OpenOptions::default());
    let mut episode = engine.begin(0);
    let mut before = 0;
    for number in 0..WINDOW + WINDOW_STEPS {
        let mut content = [0; WINDOW_MESSAGE_BYTES];
        fill_step(400, number, &mut content);
        episode.hear(Item::Chat { role: USER, content: &content });
        if number + 1 < WINDOW {
            continue;
        }
        if number >= WINDOW {
            episode.forget(1);
        }
        episode.turn(&[]);
        episode.wait();
        if number + 1 == WINDOW {
            before = bytes_below(scratch.path());
        }
    }
    let each = (bytes_below(scratch.path()) - before) as f64 / WINDOW_STEPS as f64;
    println!("  {each:.0} bytes a step for a new message of {WINDOW_MESSAGE_BYTES} bytes");
    vec![Got { name: "size-window-400", value: each }]
}
