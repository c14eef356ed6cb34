//! A real disk that notes which ranges of the grouped segments are read, so that places can be counted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keepstep::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, RealDisk, Watch};

/// What was read of each file: ranges as (from, to).
type Ranges = BTreeMap<String, Vec<(u64, u64)>>;

pub struct WatchedDisk {
    disk: RealDisk,
    read: Arc<Mutex<Ranges>>,
}

impl WatchedDisk {
    pub fn open(dir: &Path) -> Self {
        WatchedDisk { disk: RealDisk::open(dir).expect("could not open the store"), read: Arc::default() }
    }

    /// Forgets what was read so far.
    pub fn begin(&self) {
        self.read.lock().unwrap().clear();
    }

    /// How many ranges of grouped segments were read since, those that touch taken together. What stands behind the data,
    /// the index, does not count.
    pub fn places(&self) -> u64 {
        let read = self.read.lock().unwrap();
        let grouped = read.iter().filter(|(path, _)| path.starts_with("grouped/") && path.ends_with(".seg"));
        grouped.map(|(path, ranges)| self.places_of(path, ranges.clone())).sum()
    }

    fn places_of(&self, path: &str, mut ranges: Vec<(u64, u64)>) -> u64 {
        let data_end = self.data_end(path);
        ranges.retain(|(from, _)| *from < data_end);
        ranges.sort_unstable();
        let mut places = 0;
        let mut end = None;
        for (from, to) in ranges {
            if end.is_none_or(|end| from > end) {
                places += 1;
            }
            end = end.max(Some(to));
        }
        places
    }

    /// The offset of LISTS, as the trailer says: the last 40 bytes, at 16.
    fn data_end(&self, path: &str) -> u64 {
        let data = keepstep::disk::read_file(&self.disk, path).expect("could not read a segment");
        let trailer = data.last_chunk::<40>().expect("a segment is sealed");
        u64::from_le_bytes(trailer[16..24].try_into().expect("eight bytes"))
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    path: String,
    read: Arc<Mutex<Ranges>>,
}

impl File for WatchedFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(out, offset)?;
        let mut ranges = self.read.lock().unwrap();
        ranges.entry(self.path.clone()).or_default().push((offset, offset + read as u64));
        Ok(read)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
    fn links(&self) -> io::Result<u64> {
        self.file.links()
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

impl Clock for WatchedDisk {
    fn now_us(&self) -> i64 {
        self.disk.now_us()
    }
    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.disk.random(out)
    }
    fn sleep(&self, time: Duration) {
        self.disk.sleep(time);
    }
}

impl Files for WatchedDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path)?;
        Ok(Arc::new(WatchedFile { file, path: path.to_owned(), read: Arc::clone(&self.read) }))
    }
    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        self.disk.lock_state(path)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.disk.create_new(path)
    }
    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open_rw(path)
    }
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.link(from, to)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn file_system(&self) -> io::Result<FileSystem> {
        self.disk.file_system()
    }
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        self.disk.watch(dirs)
    }
    fn boot_id(&self) -> String {
        self.disk.boot_id()
    }
}
