//! Which groups are sealed, by the names of their seals.

use std::collections::HashSet;

use keepstep_format::Id;

use crate::disk::{self, Disk};
use crate::error::{Doing, Result};
use crate::segment::names::GROUPS;

/// The ids of all sealed groups of a store. Lists names, and reads no seal.
pub(in crate::store) fn sealed_groups(disk: &dyn Disk) -> Result<HashSet<Id>> {
    let mut sealed = HashSet::new();
    for shard in disk.list(GROUPS).doing("list", GROUPS)?.iter().filter(|entry| entry.is_dir) {
        let dir = disk::join(GROUPS, &shard.name);
        let entries = disk.list(&dir).doing("list", &dir)?;
        sealed
            .extend(entries.iter().filter_map(|entry| entry.name.strip_suffix(".seal")?.parse::<Id>().ok()));
    }
    Ok(sealed)
}
