//! The files that all actors share: names and bytes in memory, cheap to copy and to compare.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

/// A number that stands for some things, the same in every run.
pub fn digest(things: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    things.hash(&mut hasher);
    hasher.finish()
}

/// How the name of a file in the making begins.
const TEMPORARY: &str = ".tmp-";

fn is_temporary(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(TEMPORARY))
}

/// All files of a store.
#[derive(Clone, Default)]
pub struct Shelf {
    names: BTreeMap<String, usize>,
    /// Each with who made it.
    dirs: BTreeMap<String, usize>,
    files: Vec<Held>,
}

#[derive(Clone, Default)]
struct Held {
    data: Arc<Vec<u8>>,
    /// Stands for everything that was ever written to it.
    digest: u64,
    maker: usize,
    locked_by: Option<usize>,
    names: u64,
    /// It has a name under which others look for it.
    is_published: bool,
}

impl Shelf {
    /// Stands for all that somebody could find, leaving out what is in the making: that follows from what its maker did.
    pub fn digest(&self) -> u64 {
        let found = self.names.iter().filter(|(path, _)| !is_temporary(path));
        digest(found.map(|(path, &file)| (path, self.files[file].digest)).collect::<Vec<_>>())
    }

    pub fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path) || self.dirs.contains_key(path)
    }

    pub fn file(&self, path: &str) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn create_dir(&mut self, path: &str, maker: usize) -> io::Result<()> {
        if self.dirs.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.dirs.insert(path.to_owned(), maker);
        Ok(())
    }

    pub fn create(&mut self, path: &str, maker: usize) -> io::Result<usize> {
        let file = self.files.len();
        self.files.push(Held { maker, ..Held::default() });
        self.add_name(path, file)?;
        Ok(file)
    }

    pub fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.add_name(to, self.file(from)?)
    }

    fn add_name(&mut self, path: &str, file: usize) -> io::Result<()> {
        if self.exists(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.names.insert(path.to_owned(), file);
        self.files[file].names += 1;
        self.files[file].is_published |= !is_temporary(path);
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.file(from)?;
        if self.names.contains_key(to) {
            self.remove(to)?;
        }
        self.remove(from)?;
        self.add_name(to, file)
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        let file = self.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.files[file].names -= 1;
        Ok(())
    }

    /// The names in a directory; what is in the making is passed over, as every reader does.
    pub fn list(&self, dir: &str) -> Vec<(String, bool)> {
        let inside = |path: &String| {
            let name = path.strip_prefix(dir)?.strip_prefix('/')?;
            (!name.contains('/') && !is_temporary(name)).then(|| name.to_owned())
        };
        let files = self.names.keys().filter_map(|path| Some((inside(path)?, false)));
        let mut found: Vec<_> =
            files.chain(self.dirs.keys().filter_map(|path| Some((inside(path)?, true)))).collect();
        found.sort();
        found
    }

    pub fn data(&self, file: usize) -> &[u8] {
        &self.files[file].data
    }

    /// Who made a file: nobody else ever writes to it.
    pub fn maker(&self, file: usize) -> usize {
        self.files[file].maker
    }

    /// Who made what has this name.
    pub fn maker_of(&self, path: &str) -> Option<usize> {
        self.dirs.get(path).copied().or_else(|| self.names.get(path).map(|&file| self.files[file].maker))
    }

    pub fn links(&self, file: usize) -> u64 {
        self.files[file].names
    }

    pub fn is_published(&self, file: usize) -> bool {
        self.files[file].is_published
    }

    pub fn write(&mut self, file: usize, data: &[u8], offset: usize) {
        let held = &mut self.files[file];
        held.digest = digest((held.digest, offset, data));
        let bytes = Arc::make_mut(&mut held.data);
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    pub fn lock(&mut self, file: usize, actor: usize) -> bool {
        *self.files[file].locked_by.get_or_insert(actor) == actor
    }

    pub fn locked_by(&self, file: usize) -> Option<usize> {
        self.files[file].locked_by
    }

    /// As fcntl does: closing any handle to a file frees the lock that this process has on it.
    pub fn unlock(&mut self, file: usize, actor: usize) {
        if self.files[file].locked_by == Some(actor) {
            self.files[file].locked_by = None;
        }
    }
}
