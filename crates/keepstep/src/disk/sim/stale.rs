//! What may be in a block that a file got but never wrote: bytes that another file left there.
//!
//! The nastiest come first: those that a reader is most likely to take for its own.

use super::content::{Sector, ZEROS};
use super::model::{Ino, Model};

/// More files than this make a cut slower, not nastier.
const FILES_MAX: usize = 8;
/// Files of one kind begin alike.
const MAGIC_BYTES: usize = 4;

/// Where the stale bytes of one file may come from.
pub(super) struct Sources {
    ino: Ino,
    /// Files that begin as this one does, then the others; the newest first. Deleted ones too.
    files: Vec<Ino>,
}

impl Sources {
    pub(super) fn of(model: &Model, ino: Ino) -> Self {
        let own_magic = magic(model, ino);
        let mut files: Vec<Ino> = model
            .files()
            .filter(|(other, file)| *other != ino && file.content.bytes() > 0)
            .map(|(other, _)| other)
            .collect();
        files.sort_by_key(|&other| {
            std::cmp::Reverse((own_magic.is_some() && magic(model, other) == own_magic, other))
        });
        files.truncate(FILES_MAX);
        Self { ino, files }
    }

    pub(super) fn files(&self) -> &[Ino] {
        &self.files
    }

    /// At most `max` different contents for a sector, none of them zeros: the same place in other files, then this file's
    /// own bytes from elsewhere.
    pub(super) fn for_sector(&self, model: &Model, sector: u64, max: usize) -> Vec<Sector> {
        let same_place = self.files.iter().map(|&ino| (ino, sector));
        let own = [sector.saturating_sub(1), 0].map(|other| (self.ino, other));
        let mut found: Vec<Sector> = Vec::new();
        for (ino, sector) in same_place.chain(own) {
            let Some(file) = model.file(ino) else { continue };
            let bytes = file.content.sector(sector);
            if found.len() < max && *bytes != ZEROS && !found.contains(bytes) {
                found.push(*bytes);
            }
        }
        found
    }
}

fn magic(model: &Model, ino: Ino) -> Option<[u8; MAGIC_BYTES]> {
    let mut magic = [0; MAGIC_BYTES];
    let read = model.file(ino)?.content.read(&mut magic, 0);
    (read == MAGIC_BYTES).then_some(magic)
}
