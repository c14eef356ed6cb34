//! All cards of a run's plan that were read so far, merged.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The planned samples of one task and iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct PlannedTask {
    pub(in crate::store) task: Arc<str>,
    pub(in crate::store) iteration: i64,
    pub(in crate::store) samples: u32,
    pub(in crate::store) needs: BTreeSet<String>,
}

/// All cards of a run's plan that were read so far, merged.
#[derive(Debug, Default)]
pub(in crate::store) struct Plan {
    pub(in crate::store) tasks: Vec<PlannedTask>,
    pub(in crate::store) by_name: HashMap<i64, HashMap<Arc<str>, usize>>,
    /// The number of the first card that was not there.
    pub(in crate::store) next: u64,
    /// True if no card was missing at the first look.
    pub(in crate::store) is_dense: bool,
    pub(in crate::store) episodes: u64,
}
