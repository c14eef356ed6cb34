//! A simulated directory: the names that everyone sees, and the changes to them that a power cut may still undo.
//!
//! Each un-synced change is kept or lost by itself, whatever came before or after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::Ino;

pub(super) type Name = Arc<str>;

/// A change of names in one directory that was not synced.
#[derive(Clone)]
pub(super) enum Change {
    /// The name stands for this file now, or for none.
    Name { name: Name, now: Option<Ino> },
    /// A rename inside the directory.
    Rename { from: Name, to: Name, ino: Ino, is_dir: bool },
}

/// What a power cut does to one change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Kept,
    /// Of a rename: the new name was written, the old one not yet removed.
    NewNameOnly,
}

impl Change {
    pub(super) fn fates(&self) -> &'static [Fate] {
        match self {
            // A directory with two names is no state that any file system repairs to.
            Self::Name { .. } | Self::Rename { is_dir: true, .. } => &[Fate::Lost, Fate::Kept],
            Self::Rename { .. } => &[Fate::Lost, Fate::NewNameOnly, Fate::Kept],
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        let (first, second) = match self {
            Self::Name { name, .. } => (name, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// Changes `names` as this fate says.
    pub(super) fn apply(&self, fate: Fate, names: &mut BTreeMap<Name, Option<Ino>>) {
        if fate == Fate::Lost {
            return;
        }
        match self {
            Self::Name { name, now } => {
                names.insert(Arc::clone(name), *now);
            }
            Self::Rename { from, to, ino, .. } => {
                names.insert(Arc::clone(to), Some(*ino));
                if fate == Fate::Kept {
                    names.insert(Arc::clone(from), None);
                }
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct DirNode {
    /// What everyone sees.
    pub(super) names: BTreeMap<Name, Ino>,
    /// The changes since the last sync, oldest first.
    pub(super) unsynced: Vec<Change>,
    /// What is on the platter under each name that has changed since.
    pub(super) safe: BTreeMap<Name, Option<Ino>>,
}

impl DirNode {
    pub(super) fn change(&mut self, change: Change) {
        for name in change.names() {
            let before = self.names.get(name).copied();
            self.safe.entry(Arc::clone(name)).or_insert(before);
        }
        let mut changed = BTreeMap::new();
        change.apply(Fate::Kept, &mut changed);
        for (name, ino) in changed {
            self.put(name, ino);
        }
        self.unsynced.push(change);
    }

    pub(super) fn put(&mut self, name: Name, ino: Option<Ino>) {
        match ino {
            Some(ino) => self.names.insert(name, ino),
            None => self.names.remove(&name),
        };
    }

    pub(super) fn synced(&mut self) {
        self.unsynced.clear();
        self.safe.clear();
    }
}
