//! What an acknowledged step can survive on this storage.
//!
//! If a requested level cannot be reached, it is an error. Without a request, the store gets the highest level that
//! there is, with a warning if that is less than `power`.

use crate::disk::{Disk, FileSystem};
use crate::error::Doing;
use crate::store::{Error, Level, Result};

/// What a store reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Reached {
    /// What its steps wait for.
    pub(in crate::store) level: Level,
    /// The highest level of this storage.
    pub(in crate::store) strongest: Level,
    /// Why the default is less than `power`, as a text for people. `None` if a level was requested.
    pub(in crate::store) short_of: Option<String>,
}

/// The requested level, if this disk can reach it; without one, the highest.
pub(in crate::store) fn reached(disk: &dyn Disk, wanted: Option<Level>) -> Result<Reached> {
    let storage = disk.file_system().doing("look at the file system of", "the store")?;
    let out_of_reach = |wanted: Level, storage: String, why: &str| Error::LevelOutOfReach {
        wanted: wanted.name(),
        storage,
        why: why.to_owned(),
    };
    if wanted == Some(Level::Machine) {
        let why = "the disk is lost with the machine; ask for level power";
        return Err(out_of_reach(Level::Machine, "a directory".to_owned(), why));
    }
    let (name, why) = match storage {
        FileSystem::Network(number) => {
            return Err(out_of_reach(
                wanted.unwrap_or(Level::Power),
                format!("a network file system (type {number:#x})"),
                "locks and caches there cannot be trusted; record to a local disk",
            ));
        }
        FileSystem::Local(_) => {
            let level = wanted.unwrap_or(Level::Power);
            return Ok(Reached { level, strongest: Level::Power, short_of: None });
        }
        FileSystem::Memory(name) => (name, "it is memory, which a power cut empties"),
        FileSystem::Unsynced(name, why) => (name, why),
    };
    if wanted == Some(Level::Power) {
        let why = format!("{why}; ask for level kill, or record to a disk");
        return Err(out_of_reach(Level::Power, name.to_owned(), &why));
    }
    let short_of = wanted.is_none().then(|| {
        format!("steps recorded here survive a kill, but no power cut: on {name}, {why}; pass level \"kill\" to accept that")
    });
    Ok(Reached { level: Level::Kill, strongest: Level::Kill, short_of })
}
