//! A file that gets its name when it is whole. Until then, an old file of that name stays.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::disk::{File, Files, RealDisk};
use crate::error::{Doing, Error, Result};

/// How many bytes are buffered before a write.
const BUFFER_BYTES: usize = 1 << 20;

/// A new file. It is removed if it is dropped before [`NewFile::keep`].
pub struct NewFile {
    disk: Arc<dyn Files>,
    file: Arc<dyn File>,
    name: String,
    /// Its temporary name; `None` once it has its own.
    temporary: Option<String>,
    buffer: Vec<u8>,
    written: u64,
}

impl std::fmt::Debug for NewFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<NewFile {:?}, {} bytes>", self.name, self.written + self.buffer.len() as u64)
    }
}

impl NewFile {
    /// Begins a file for this path. A link is followed: its target is replaced.
    pub fn create(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let refuse = |value: &str, fix: &str| Error::BadInput {
            field: format!("the output {shown:?}"),
            value: value.to_owned(),
            fix: fix.to_owned(),
        };
        let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        // A device or a pipe must never be replaced by a file.
        if let Ok(found) = std::fs::metadata(path)
            && !found.is_file()
        {
            let value = if found.is_dir() { "is a directory" } else { "is a device or a pipe" };
            return Err(refuse(value, "name a file, or write to stdout"));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| refuse("has no name that is text", "name a file"))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let disk = RealDisk::open(dir).doing("open", &dir.display().to_string())?;
        Self::on_disk(Arc::new(disk), name)
    }

    /// As [`NewFile::create`], in any disk's root.
    pub fn on_disk(disk: Arc<dyn Files>, name: &str) -> Result<Self> {
        let mut random = [0; 8];
        disk.random(&mut random).doing("find a name for", name)?;
        let temporary = format!(".tmp-{:016x}", u64::from_le_bytes(random));
        let file = disk.create_new(&temporary).doing("create a file beside", name)?;
        let name = name.to_owned();
        Ok(Self { disk, file, name, temporary: Some(temporary), buffer: Vec::new(), written: 0 })
    }

    /// Gives the file its name, and replaces what had it. It is whole, and survives a power cut, when this returns.
    pub fn keep(mut self) -> Result<()> {
        self.flush().doing("write", &self.name)?;
        self.file.sync().doing("sync", &self.name)?;
        if let Some(temporary) = &self.temporary {
            self.disk.rename(temporary, &self.name).doing("name", &self.name)?;
        }
        self.temporary = None;
        self.disk.sync_dir("").doing("sync the directory of", &self.name)
    }
}

impl Write for NewFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // A temporary file that is left behind does no harm.
        if let Some(temporary) = self.temporary.take() {
            let _ = self.disk.remove(&temporary);
        }
    }
}
