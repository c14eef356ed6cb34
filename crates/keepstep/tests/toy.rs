//! The tests of the engine, on a storage that is no directory: whatever holds there rests on the doors alone.
//!
//! What a test says about files (`is_toy()` ends it early) is about a directory, and is left to it.
//!
//! To run them on a storage of your own, give it the functions `at` and `names` of `storage::Toy`, put it in the place of
//! `Toy` in `scratch/mod.rs` (`type Storage`), and run `cargo test -p keepstep --test toy`.
#![allow(clippy::duplicate_mod, reason = "each file of tests brings its own scratch directory along")]

#[path = "episodes.rs"]
mod episodes;
#[path = "export.rs"]
mod export;
#[path = "plans.rs"]
mod plans;
#[path = "reading.rs"]
mod reading;
#[path = "runs.rs"]
mod runs;
#[path = "scoring.rs"]
mod scoring;
#[path = "slots.rs"]
mod slots;
#[path = "store.rs"]
mod store;
#[path = "wakers.rs"]
mod wakers;
