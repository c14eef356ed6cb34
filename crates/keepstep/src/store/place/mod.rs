//! Where a store is: its address, its identity, what its disk gives, and who may write.

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

/// What is said of a store whose `keepstep.json` is damaged.
const RECOVERED: &str = "keepstep.json is damaged; the store's id was read from its logs. `keepstep verify --heal` writes it again";

/// Where a store is, which one it is, and what is to be had there.
pub(in crate::store) struct Place {
    pub(in crate::store) disk: Arc<dyn Disk>,
    pub(in crate::store) id: Id,
    pub(in crate::store) key: ContentKey,
    /// What steps survive unless they ask for something else.
    pub(in crate::store) level: Level,
    /// The most that this storage gives.
    pub(in crate::store) strongest: Level,
    /// What whoever opens it should be told.
    pub(in crate::store) warnings: Vec<String>,
    pub(in crate::store) options: Options,
    /// Where small files are read from.
    pub(in crate::store) cards: Arc<Storage>,
    /// The same, for what must know what was pruned.
    pub(in crate::store) tended: Arc<Storage>,
}

impl Place {
    /// Finds the store that is there, or makes one where nothing is.
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
