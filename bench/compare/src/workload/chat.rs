//! A chat that nothing can compress: each turn one message is heard and one is answered, 2,048 random bytes each.

use super::RECORD_BYTES;
use super::jsonl::{line_bytes, message_bytes};
use super::random::fill_step;

pub const USER: &str = "user";
pub const ASSISTANT: &str = "assistant";

pub struct Chat {
    pub seed: u64,
    pub turns: u64,
}

impl Chat {
    /// What is heard before this turn.
    pub fn question(&self, turn: u64) -> [u8; RECORD_BYTES] {
        self.message(2 * turn)
    }

    /// What is said in this turn, and stands in every later prompt.
    pub fn answer(&self, turn: u64) -> [u8; RECORD_BYTES] {
        self.message(2 * turn + 1)
    }

    fn message(&self, number: u64) -> [u8; RECORD_BYTES] {
        let mut content = [0; RECORD_BYTES];
        fill_step(self.seed, number, &mut content);
        content
    }

    /// The same turns as full-history JSONL, 2,048 bytes a message plus its keys.
    pub fn jsonl_bytes(&self) -> u64 {
        let (question, answer) = (message_bytes(USER, RECORD_BYTES), message_bytes(ASSISTANT, RECORD_BYTES));
        let mut prompt = Vec::new();
        let mut total = 0;
        for _ in 0..self.turns {
            prompt.push(question);
            total += line_bytes(&prompt, &[answer]);
            prompt.push(answer);
        }
        total
    }
}
