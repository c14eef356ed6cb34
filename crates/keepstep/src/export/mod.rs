//! Writes episodes in formats of other programs. It reads through `store`, which gives it the types of `read`, and writes
//! its files through `disk`.
//!
//! The output is whole or absent: a file gets its name when everything is in it.

mod digits;
mod file;
pub mod json;
mod jsonl;
#[cfg(test)]
mod tests;

pub use file::NewFile;
pub use jsonl::{ExportCounts, Jsonl, JsonlOptions};
