//! Where a store is: its address, its id, the level of its disk, and which folders can be written.

pub(in crate::store) mod address;
pub(in crate::store) mod identity;
pub(in crate::store) mod level;
pub(in crate::store) mod writable;

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::hash::ContentKey;

use crate::disk::Disk;
use crate::error::Result;
use crate::options::{Level, Options};
use crate::segment::Storage;
use crate::store::place::identity::Identity;
use crate::store::place::level::Reached;

/// The warning about a damaged `keepstep.json`.
const RECOVERED: &str = "keepstep.json is damaged; the store's id was read from its logs. `keepstep verify --heal` writes it again";

/// Where a store is, its id, and which level it reaches.
pub(in crate::store) struct Place {
    pub(in crate::store) disk: Arc<dyn Disk>,
    pub(in crate::store) id: Id,
    pub(in crate::store) key: ContentKey,
    /// The level of its steps, unless a step asks for another one.
    pub(in crate::store) level: Level,
    /// The highest level of this storage.
    pub(in crate::store) strongest: Level,
    /// Warnings for the caller that opens it.
    pub(in crate::store) warnings: Vec<String>,
    pub(in crate::store) options: Options,
    /// Reads small files.
    pub(in crate::store) cards: Arc<Storage>,
    /// The same, for readers that must know what was pruned.
    pub(in crate::store) tended: Arc<Storage>,
}

impl Place {
    /// Opens the store that is there, or makes one if nothing is.
    pub(in crate::store) fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let Reached { level, strongest, short_of } = level::reached(&*disk, options.level)?;
        let Identity { id, is_recovered } = identity::find_or_make(&*disk)?;
        let mut warnings: Vec<String> = short_of.into_iter().collect();
        if is_recovered {
            warnings.push(RECOVERED.to_owned());
        }
        let key = ContentKey::new(&id.0);
        let cards = Arc::new(Storage::new(Arc::clone(&disk), id));
        let tended = Arc::new(Storage::new(Arc::clone(&disk), id));
        Ok(Self { disk, id, key, level, strongest, warnings, options, cards, tended })
    }
}
