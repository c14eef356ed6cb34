//! A simulated file: what reads see, and what of it a power cut may still take back.
//!
//! A sector that is not listed as un-synced is on the platter, and no cut changes it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use std::sync::Arc;

use super::content::{Content, SECTOR_BYTES, Sector};

/// Everything that was in a sector since it was last safe, except what is in it now.
#[derive(Clone)]
pub(super) struct Unsynced {
    /// What a sync made safe; none if the block was never written, so that anything may be in it.
    pub(super) safe: Option<Arc<Sector>>,
    /// Later versions, oldest first. The newest is in the file's content.
    pub(super) older: Vec<Arc<Sector>>,
    /// A sync failed: the kernel calls the sector clean, so no later sync writes it unless it is written to again.
    pub(super) dropped: bool,
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    pub(super) content: Content,
    pub(super) synced_bytes: u64,
    /// The lengths that it had since the last sync that worked, ascending.
    pub(super) lengths: Vec<u64>,
    pub(super) unsynced: BTreeMap<u64, Unsynced>,
}

impl FileNode {
    /// What a power cut left.
    pub(super) fn settled(content: Content) -> Self {
        Self { synced_bytes: content.bytes(), content, ..Self::default() }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.unsynced.is_empty() && self.lengths.is_empty()
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let end = offset + data.len() as u64;
        for sector in offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64) {
            let before = || Arc::new(*self.content.sector(sector));
            match self.unsynced.entry(sector) {
                Slot::Vacant(slot) => {
                    let on_platter = sector * (SECTOR_BYTES as u64) < self.synced_bytes;
                    let safe = on_platter.then(before);
                    slot.insert(Unsynced { safe, older: Vec::new(), dropped: false });
                }
                Slot::Occupied(mut slot) => {
                    slot.get_mut().older.push(before());
                    slot.get_mut().dropped = false;
                }
            }
        }
        if end > self.content.bytes() {
            self.lengths.push(end);
        }
        self.content.write(data, offset);
    }

    pub(super) fn synced(&mut self) {
        self.unsynced.retain(|_, sector| sector.dropped);
        // The length is the inode's, which stays dirty until a sync works.
        self.synced_bytes = self.content.bytes();
        self.lengths.clear();
    }

    pub(super) fn sync_failed(&mut self) {
        for sector in self.unsynced.values_mut() {
            sector.dropped = true;
        }
    }
}
