//! Reads the episodes of one run back, with a reader of its own that has seen nothing before.

use std::collections::HashMap;
use std::path::Path;

use super::compare::Found;
use super::content::Key;
use crate::failure::{Failure, Outcome};

/// What was read back.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    pub(crate) episodes: HashMap<Key, Found>,
    /// Places of damage in the whole store.
    pub(crate) damaged: u64,
}

/// Reads a run.
pub(crate) fn read_back(store: &Path, run: &str) -> Outcome<ReadBack> {
    let _ = (store, run);
    Err(Failure::new("reading is not built yet"))
}
