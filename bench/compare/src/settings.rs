//! How long, how often, and where.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A ratio needs this many pairs: single ones swing by 30 %.
const PAIRS: usize = 9;
const PAIRS_QUICK: usize = 3;

pub struct Settings {
    /// Fewer pairs and smaller stores: shows that the bench works, proves no bar.
    pub quick: bool,
    pub pairs: usize,
    pub warm_up: Duration,
    pub measured: Duration,
    /// Every store is built below here, on the disk that is measured.
    pub data_dir: PathBuf,
    pub rollouts_dir: PathBuf,
}

impl Settings {
    pub fn new(quick: bool) -> Self {
        let variable = |name, otherwise: PathBuf| env::var_os(name).map_or(otherwise, PathBuf::from);
        Settings {
            quick,
            pairs: if quick { PAIRS_QUICK } else { PAIRS },
            warm_up: Duration::from_millis(150),
            measured: Duration::from_millis(850),
            data_dir: variable("KEEPSTEP_BENCH_DIR", repository().join("target/bench-data")),
            rollouts_dir: variable("KEEPSTEP_ROLLOUTS", repository().join("../shared/data/rollouts")),
        }
    }
}

/// The root of the repository that this program was built from.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("bench/compare lies two folders deep")
}
