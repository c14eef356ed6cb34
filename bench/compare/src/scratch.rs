//! A fresh directory for every measurement, on the disk that is measured, gone afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, process};

use rustix::fs::{Advice, fadvise, syncfs};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Removed when dropped, and the file system synced, so that the next measurement does not pay for this one.
pub struct Scratch {
    path: PathBuf,
    root: PathBuf,
}

impl Scratch {
    pub fn new(root: &Path) -> Self {
        let name = format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = root.join(name);
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("could not create {}: {error}", path.display()));
        sync_file_system(root);
        Scratch { path, root: root.to_path_buf() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("could not remove {}: {error}", self.path.display());
        }
        sync_file_system(&self.root);
    }
}

/// Removes what an earlier run that died left under the root.
pub fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((process, number)) = name.split_once('-') else { continue };
        let ours = process.parse::<u32>().is_ok() && number.parse::<u32>().is_ok();
        if ours && !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Bytes in all files below a directory, as long as they say they are.
pub fn bytes_below(dir: &Path) -> u64 {
    files_below(dir).iter().map(|file| fs::metadata(file).expect("a file vanished").len()).sum()
}

/// Forgets what the kernel has cached of these files, as far as one can without being root.
pub fn evict(dir: &Path) {
    sync_file_system(dir);
    for path in files_below(dir) {
        let file = File::open(&path).expect("could not open a file to evict it");
        fadvise(&file, 0, None, Advice::DontNeed).expect("could not evict a file");
    }
}

/// Brings all files below a directory into the kernel's cache.
pub fn warm(dir: &Path) {
    for path in files_below(dir) {
        let mut file = File::open(&path).expect("could not open a file to warm it");
        io::copy(&mut file, &mut io::sink()).expect("could not read a file to warm it");
    }
}

pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("could not create the copy");
    for entry in fs::read_dir(from).expect("could not list what to copy").flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target);
        } else {
            fs::copy(&source, &target).expect("could not copy a file");
        }
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("could not list a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

fn sync_file_system(path: &Path) {
    let dir = File::open(path).expect("could not open the bench directory");
    syncfs(&dir).expect("could not sync the file system");
}
