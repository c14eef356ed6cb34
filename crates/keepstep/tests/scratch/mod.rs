//! A directory for one test, and ways into the store there.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs of this")]

use std::path::{Path, PathBuf};

use keepstep::{Options, Result, Run, Store, Value};

mod copying;
#[path = "../storage/mod.rs"]
mod storage;

pub(crate) use copying::copy_all;

/// What `toy.rs` runs on.
type Storage = storage::Toy;

/// True in `toy.rs`, which runs tests of other files on a storage that is no directory.
pub(crate) fn is_toy() -> bool {
    env!("CARGO_CRATE_NAME") == "toy"
}

/// Opens the store at a path: a directory, or a toy.
pub(crate) fn open(path: &Path, options: Options) -> Result<Store> {
    if is_toy() {
        return Store::on_disk(std::sync::Arc::new(Storage::at(path)), options);
    }
    Store::open(path, options)
}

/// A directory of its own, on the disk that the tests are built on; gone afterwards.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "{}-{name}-{}",
            env!("CARGO_CRATE_NAME"),
            std::process::id()
        ));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// Another opener of the same store: it has a writer of its own, as another process would.
    pub(crate) fn store(&self) -> Store {
        self.open(Options::default())
    }

    /// The same, opened with options.
    pub(crate) fn open(&self, options: Options) -> Store {
        open(&self.0, options).expect("opens")
    }

    /// The run of another opener.
    pub(crate) fn run(&self) -> Run {
        run_in(&self.0)
    }

    /// All files below a folder whose name ends so.
    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        if is_toy() {
            return Storage::at(&self.0).names(ending).iter().map(|name| self.0.join(name)).collect();
        }
        let mut found = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("lists").flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name().to_string_lossy().ends_with(ending) {
                    found.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The run of another opener of the store in that directory.
pub(crate) fn run_in(dir: &Path) -> Run {
    open(dir, Options::default()).expect("opens").run("run", Value::Null).expect("opens")
}
