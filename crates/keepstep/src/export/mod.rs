//! Episodes in the formats of others. A room of its own: it reads through the store, and knows no other room.
//!
//! What is written is whole or absent: a file gets its name when everything is in it.

mod digits;
mod file;
pub mod json;
mod jsonl;
#[cfg(test)]
mod tests;

pub use file::NewFile;
pub use jsonl::{Jsonl, JsonlCounts, JsonlOptions};
