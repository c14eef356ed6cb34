//! Checks the files of the catalog: each is whole, and says of its segments what their indexes say.

use std::collections::{BTreeMap, BTreeSet};

use keepstep_format::Id;

use super::report::Wrong;
use super::verify::Verifier;
use crate::error::{Doing, Result};
use crate::segment::catalog_files::{CatalogFile, decode_numbers, subject_of};
use crate::segment::names::{catalog_path, list_catalogs};
use crate::segment::{Contents, Log};

impl Verifier<'_> {
    /// Nothing is lost by a bad one: readers open the segments instead.
    pub(super) fn check_catalog(&mut self, grouped: &Log) -> Result<()> {
        for number in list_catalogs(self.storage.disk())? {
            let path = catalog_path(number);
            let wrong = match self.said_by(number) {
                Some(said) if is_right(grouped, &said) => continue,
                Some(_) => (Wrong::Disagrees, "it says other than the indexes of its segments"),
                // Removed since it was listed: `compact` has made another one.
                None if !self.storage.disk().exists(&path).doing("look for", &path)? => continue,
                None => {
                    (Wrong::Index, "it does not validate, and is not used until `compact` makes it again")
                }
            };
            self.damage(path, None, (0, 0), wrong.0, wrong.1.to_owned());
        }
        Ok(())
    }

    /// What a file says of each segment, by salt: the ids that have records in it. `None` if it is damaged.
    fn said_by(&self, number: u64) -> Option<BTreeMap<(u64, u64), BTreeSet<Id>>> {
        let file = CatalogFile::read(self.storage, number)?;
        let salts = &file.segments;
        let mut said: BTreeMap<(u64, u64), BTreeSet<Id>> =
            salts.iter().map(|(number, salt)| ((*number, *salt), BTreeSet::new())).collect();
        file.each(self.storage, &mut |key, value| {
            if let Some(id) = subject_of(key) {
                for number in decode_numbers(value)? {
                    said.get_mut(&(number, *salts.get(&number)?))?.insert(id);
                }
            }
            Some(true)
        })?;
        Some(said)
    }
}

/// True if a file is right about all its segments that are in force and can be read.
fn is_right(grouped: &Log, said: &BTreeMap<(u64, u64), BTreeSet<Id>>) -> bool {
    grouped.segments().all(|segment| {
        let salt = segment.head().map(|head| head.salt);
        let said = salt.and_then(|salt| said.get(&(segment.number, salt)));
        match (said, segment.contents()) {
            (Some(said), Contents::Sealed(index)) if !index.is_rebuilt() => {
                index.entries().map(|entry| entry.id).collect::<BTreeSet<_>>() == *said
            }
            _ => true,
        }
    })
}
