//! One random state that a power cut can leave, with a preference for those that break things.
//!
//! Fully random states are the easiest: their damage is nearly always caught. So most states are uniform with a
//! single exception: all but one kept, all up to one, one torn.

use std::collections::BTreeMap;

use super::chance::Chance;
use super::content::{SECTOR_BYTES, Sector, ZEROS};
use super::dir::{DirNode, Fate, Name};
use super::file::{FileNode, Unsynced};
use super::model::{Ino, Model};
use super::outcomes::{look_alikes, torn};
use super::stale::Sources;
use super::trace::Scene;

/// Which of several un-synced things a cut keeps.
#[derive(Clone, Copy)]
enum CutKind {
    AllLost,
    AllKept,
    OneLost,
    OneKept,
    Front,
    Back,
    /// Each by itself, kept so many times in four.
    Each(u64),
}

impl CutKind {
    fn any(chance: &mut Chance) -> Self {
        match chance.below(10) {
            0 => Self::AllLost,
            1 | 2 => Self::AllKept,
            3 => Self::OneLost,
            4 => Self::OneKept,
            5 | 6 => Self::Front,
            7 => Self::Back,
            _ => Self::Each(1 + chance.below(3)),
        }
    }

    /// For each of `count` things whether it is kept.
    fn kept(self, count: usize, chance: &mut Chance) -> Vec<bool> {
        if count == 0 {
            return Vec::new();
        }
        let one = chance.index(count);
        let keep = |at: usize, chance: &mut Chance| match self {
            Self::AllLost => false,
            Self::AllKept => true,
            Self::OneLost => at != one,
            Self::OneKept => at == one,
            Self::Front => at < one,
            Self::Back => at > one,
            Self::Each(quarters) => chance.below(4) < quarters,
        };
        (0..count).map(|at| keep(at, chance)).collect()
    }
}

/// Makes `model`, a copy of the disk as everyone `saw` it, a state that a cut there can leave.
pub(super) fn settle(model: &mut Model, saw: &Model, scene: &Scene, chance: &mut Chance) {
    // A cut often hits everything in the same way: the cache was just written back, or not at all.
    let shared = chance.once_in(4).then(|| CutKind::any(chance));
    for &ino in &scene.dirs {
        let Some(dir) = saw.dir(ino) else { continue };
        let mood = shared.unwrap_or_else(|| CutKind::any(chance));
        for (name, left) in names(dir, mood, chance) {
            model.settle_name(ino, &name, left);
        }
    }
    for (ino, sources) in &scene.files {
        let Some(file) = saw.file(*ino) else { continue };
        let mood = shared.unwrap_or_else(|| CutKind::any(chance));
        model.settle_file(*ino, file_state(saw, file, sources, mood, chance));
    }
}

fn names(dir: &DirNode, mood: CutKind, chance: &mut Chance) -> BTreeMap<Name, Option<Ino>> {
    let mut left = dir.safe.clone();
    for (change, kept) in dir.unsynced.iter().zip(mood.kept(dir.unsynced.len(), chance)) {
        let fate = match kept {
            false => Fate::Lost,
            true if change.fates().contains(&Fate::NewNameOnly) && chance.once_in(4) => Fate::NewNameOnly,
            true => Fate::Kept,
        };
        change.apply(fate, &mut left);
    }
    left
}

fn file_state(
    model: &Model,
    file: &FileNode,
    sources: &Sources,
    mood: CutKind,
    chance: &mut Chance,
) -> FileNode {
    let bytes = length(file, mood, chance);
    let visible = bytes.div_ceil(SECTOR_BYTES as u64);
    let unsynced: Vec<(u64, &Unsynced)> =
        file.unsynced.range(..visible).map(|(&sector, unsynced)| (sector, unsynced)).collect();
    let kept = mood.kept(unsynced.len(), chance);
    let tears = Tears::any(mood, &kept, chance);
    let filler = Filler::any(sources, chance);
    // Versions in between are rarely nastier than the ends.
    let versions = chance.once_in(3);
    let mut content = file.content.clone();
    for (at, (sector, unsynced)) in unsynced.into_iter().enumerate() {
        let tear = tears.hits(at, chance);
        if kept[at] && !tear && (!versions || unsynced.older.is_empty()) {
            continue;
        }
        let newest = *file.content.sector(sector);
        let version = |chance: &mut Chance| match chance.index(unsynced.older.len() + 1) {
            at if versions && at < unsynced.older.len() => *unsynced.older[at],
            _ => newest,
        };
        let lost = match &unsynced.safe {
            Some(safe) => **safe,
            None => filler.bytes(model, file, sector, chance),
        };
        let left = match (tear, kept[at]) {
            (true, _) => any_tear(&lost, &version(chance), chance),
            (false, true) => version(chance),
            (false, false) => lost,
        };
        content.replace_sector(sector, &left);
    }
    content.cut_to(bytes);
    FileNode::settled(content)
}

fn any_tear(old: &Sector, new: &Sector, chance: &mut Chance) -> Sector {
    let look_alikes: Vec<usize> = look_alikes(old, new).collect();
    match chance.below(4) {
        0 | 1 if !look_alikes.is_empty() => {
            torn(old, new, look_alikes[chance.index(look_alikes.len())], true)
        }
        // Devices move whole words.
        2 => torn(old, new, 8 * (1 + chance.index(SECTOR_BYTES / 8 - 1)), !chance.once_in(3)),
        _ => torn(old, new, 1 + chance.index(SECTOR_BYTES - 1), !chance.once_in(3)),
    }
}

fn length(file: &FileNode, mood: CutKind, chance: &mut Chance) -> u64 {
    let (first, last) = (file.synced_bytes, file.content.bytes());
    if first == last {
        return last;
    }
    match (mood, chance.below(12)) {
        (CutKind::AllKept, 0..=7) => last,
        (_, 0) => first,
        (_, 1) => file.lengths.get(chance.index(file.lengths.len().max(1))).copied().unwrap_or(last),
        (_, 2) => first + chance.below(last - first),
        (_, 3) => (first + chance.below(last - first)).next_multiple_of(SECTOR_BYTES as u64).min(last),
        // The length outlives the data: only then do bytes that were never written become visible.
        _ => last,
    }
}

/// Which sectors are torn.
enum Tears {
    None,
    One(usize),
    Many,
}

impl Tears {
    fn any(mood: CutKind, kept: &[bool], chance: &mut Chance) -> Self {
        let count = kept.len();
        match (mood, chance.below(8)) {
            _ if count == 0 => Self::None,
            // Written from the front, and stopped in the middle of a sector.
            (CutKind::Front, 0..=3) => Self::One(kept.iter().take_while(|kept| **kept).count()),
            (_, 0..=2) => Self::One(chance.index(count)),
            (_, 3) => Self::Many,
            _ => Self::None,
        }
    }

    fn hits(&self, at: usize, chance: &mut Chance) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => at == *one,
            Self::Many => chance.once_in(3),
        }
    }
}

/// What is in the blocks that were never written.
enum Filler<'a> {
    Zeros,
    /// All of them belonged to one other file, at the same offsets.
    Once(Ino),
    /// They belonged to this very file, elsewhere.
    Own,
    Mixed(&'a [Ino]),
}

impl<'a> Filler<'a> {
    fn any(sources: &'a Sources, chance: &mut Chance) -> Self {
        let files = sources.files();
        match chance.below(8) {
            0..=2 => Self::Zeros,
            3..=5 if !files.is_empty() => {
                // The first ones are the most alike.
                let among = if chance.once_in(2) { 1 } else { files.len() };
                Self::Once(files[chance.index(among)])
            }
            6 => Self::Own,
            _ => Self::Mixed(files),
        }
    }

    fn bytes(&self, model: &Model, own: &FileNode, sector: u64, chance: &mut Chance) -> Sector {
        let of = |ino: Ino, sector: u64| model.file(ino).map_or(ZEROS, |file| *file.content.sector(sector));
        match self {
            Self::Zeros => ZEROS,
            Self::Once(ino) => of(*ino, sector),
            Self::Own => *own.content.sector(chance.below(sector + 1)),
            Self::Mixed(files) => match (chance.below(4), files) {
                (0, _) | (_, []) => ZEROS,
                (1, _) => *own.content.sector(chance.below(sector + 1)),
                (2, files) => of(files[chance.index(files.len())], chance.below(sector + 2)),
                (_, files) => of(files[chance.index(files.len())], sector),
            },
        }
    }
}
