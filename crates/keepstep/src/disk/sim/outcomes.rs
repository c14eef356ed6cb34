//! Every state that a power cut can leave, counted and numbered.
//!
//! State 0 is the one in which all that was not synced is lost. No two numbers give the same disk, as long as names and
//! their files are counted together (see [`NAMES_MAX`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::content::{SECTOR_BYTES, Sector, ZEROS};
use super::dir::{Change, DirNode, Fate, Name};
use super::file::{FileNode, Unsynced};
use super::model::{Ino, Model};
use super::stale::Sources;
use super::trace::Scene;

/// Up to so many states of the names, a file's states are counted only where a name leads to it. Above, they are counted
/// always, so that some numbers give the same disk.
const NAMES_MAX: u64 = 1024;
/// Up to so many changes that renames tie together, every subset of them is a state; above, the likely ones are.
const TIED_MAX: usize = 8;

/// How finely the states of a cut are told apart when all of them are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// In how many places a sector is torn, each once with the front new and once with the back; 511 is every byte.
    /// Besides, in up to so many places where old and new look alike.
    pub tears: usize,
    /// How many stale contents stand beside zeros in a block that was never written.
    pub stale: usize,
    /// How many lengths stand between the synced and the newest.
    pub lengths: usize,
}

impl Default for Detail {
    fn default() -> Self {
        Self { tears: 1, stale: 1, lengths: 2 }
    }
}

/// What a power cut leaves under some names that depend on one another.
type Left = Vec<(Ino, Name, Option<Ino>)>;

pub(super) struct Outcomes {
    names: Vec<Vec<Left>>,
    files: Vec<FileOutcomes>,
    /// For each state of the names, what it leads to; none if there are too many.
    cases: Option<Vec<Case>>,
    count: u64,
}

struct Case {
    /// How many states come before this one and in it.
    end: u64,
    /// The files, as places in the list, that a name leads to.
    files: Vec<usize>,
}

struct FileOutcomes {
    ino: Ino,
    lengths: Vec<LengthOutcomes>,
    count: u64,
}

struct LengthOutcomes {
    bytes: u64,
    sectors: Vec<(u64, Arc<[Sector]>)>,
    count: u64,
}

fn product(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(1, u64::saturating_mul)
}

impl Outcomes {
    pub(super) fn of(model: &Model, scene: &Scene, detail: Detail) -> Self {
        let dirs = scene.dirs.iter().filter_map(|&ino| Some((ino, model.dir(ino)?)));
        let names: Vec<Vec<Left>> = dirs.flat_map(|(ino, dir)| name_outcomes(ino, dir)).collect();
        let files: Vec<FileOutcomes> =
            scene.files.iter().map(|(ino, sources)| FileOutcomes::of(model, *ino, sources, detail)).collect();
        let name_states = product(names.iter().map(|options| options.len() as u64));
        let all_files = product(files.iter().map(|file| file.count));
        let mut outcomes = Self { names, files, cases: None, count: name_states.saturating_mul(all_files) };
        if name_states <= NAMES_MAX {
            outcomes.count_where_names_lead(model, name_states);
        }
        outcomes
    }

    fn count_where_names_lead(&mut self, model: &Model, name_states: u64) {
        let mut cases = Vec::new();
        let mut end: u64 = 0;
        for index in 0..name_states {
            let mut model = model.clone();
            self.settle_names(&mut model, index);
            let reached = model.reached();
            let files: Vec<usize> =
                (0..self.files.len()).filter(|&place| reached.contains(&self.files[place].ino)).collect();
            end = end.saturating_add(product(files.iter().map(|&place| self.files[place].count)));
            cases.push(Case { end, files });
        }
        self.cases = Some(cases);
        self.count = end;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Makes `model` the state with this number.
    pub(super) fn settle(&self, model: &mut Model, index: u64) {
        let index = index % self.count;
        if let Some(cases) = &self.cases {
            let names = cases.partition_point(|case| case.end <= index);
            let before = names.checked_sub(1).map_or(0, |last| cases[last].end);
            self.settle_names(model, names as u64);
            self.settle_files(model, index - before, cases[names].files.iter().copied());
        } else {
            let rest = self.settle_names(model, index);
            self.settle_files(model, rest, 0..self.files.len());
        }
    }

    /// Gives back what of the index was not used up.
    fn settle_names(&self, model: &mut Model, mut index: u64) -> u64 {
        for options in &self.names {
            let options_count = options.len() as u64;
            for (dir, name, left) in &options[(index % options_count) as usize] {
                model.settle_name(*dir, name, *left);
            }
            index /= options_count;
        }
        index
    }

    fn settle_files(&self, model: &mut Model, mut index: u64, places: impl Iterator<Item = usize>) {
        for place in places {
            let outcomes = &self.files[place];
            if let Some(file) = model.file(outcomes.ino) {
                let file = outcomes.state(file, index % outcomes.count);
                model.settle_file(outcomes.ino, file);
            }
            index /= outcomes.count;
        }
    }
}

/// The states of a directory's names, by groups that do not touch one another.
fn name_outcomes(ino: Ino, dir: &DirNode) -> Vec<Vec<Left>> {
    let mut groups: Vec<(BTreeSet<Name>, Vec<&Change>)> = Vec::new();
    for change in &dir.unsynced {
        let mut names: BTreeSet<Name> = change.names().cloned().collect();
        let (touched, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(group, _)| group.intersection(&names).next().is_some());
        groups = apart;
        let mut changes = Vec::new();
        for (group, earlier) in touched {
            names.extend(group);
            changes.extend(earlier);
        }
        changes.push(change);
        groups.push((names, changes));
    }
    groups.into_iter().map(|(names, changes)| group_outcomes(ino, dir, &names, &changes)).collect()
}

fn group_outcomes(ino: Ino, dir: &DirNode, names: &BTreeSet<Name>, changes: &[&Change]) -> Vec<Left> {
    let mut found: Vec<Left> = Vec::new();
    for fates in fates_to_try(names.len() == 1, changes) {
        let mut left: BTreeMap<Name, Option<Ino>> =
            names.iter().map(|name| (Arc::clone(name), dir.safe.get(name).copied().flatten())).collect();
        for (change, fate) in changes.iter().zip(fates) {
            change.apply(fate, &mut left);
        }
        let left = left.into_iter().map(|(name, now)| (ino, name, now)).collect();
        if !found.contains(&left) {
            found.push(left);
        }
    }
    found
}

/// What to do with each change: first all lost, then every outcome that differs, or those that are likely.
fn fates_to_try(one_name: bool, changes: &[&Change]) -> Vec<Vec<Fate>> {
    let count = changes.len();
    let kept = |keep: &dyn Fn(usize) -> bool| -> Vec<Fate> {
        (0..count).map(|at| if keep(at) { Fate::Kept } else { Fate::Lost }).collect()
    };
    let mut tried = vec![kept(&|_| false)];
    if one_name || count > TIED_MAX {
        // Of one name only the last change that is kept shows.
        tried.extend((0..count).map(|only| kept(&|at| at == only)));
    }
    if one_name {
        return tried;
    }
    if count > TIED_MAX {
        tried.extend((0..count).map(|last| kept(&|at| at <= last)));
        tried.extend((0..count).map(|lost| kept(&|at| at != lost)));
        return tried;
    }
    let mut all: Vec<Vec<Fate>> = vec![Vec::new()];
    for change in changes {
        let more = |fates: Vec<Fate>| change.fates().iter().map(move |&fate| [&fates[..], &[fate]].concat());
        all = all.into_iter().flat_map(more).collect();
    }
    all
}

impl FileOutcomes {
    fn of(model: &Model, ino: Ino, sources: &Sources, detail: Detail) -> Self {
        let settled = FileNode::default();
        let file = model.file(ino).unwrap_or(&settled);
        let under = |sector: u64, unsynced: &Unsynced| match &unsynced.safe {
            Some(safe) => vec![**safe],
            None => [vec![ZEROS], sources.for_sector(model, sector, detail.stale)].concat(),
        };
        let options = |sector: u64, unsynced: &Unsynced, visible_bytes: usize| -> Arc<[Sector]> {
            let newest = file.content.sector(sector);
            sector_outcomes(&under(sector, unsynced), unsynced, newest, visible_bytes, detail.tears).into()
        };
        let whole: BTreeMap<u64, Arc<[Sector]>> = file
            .unsynced
            .iter()
            .map(|(&sector, unsynced)| (sector, options(sector, unsynced, SECTOR_BYTES)))
            .collect();
        let of_length = |bytes: u64| {
            let mut sectors = Vec::new();
            for (&sector, unsynced) in &file.unsynced {
                let start = sector * SECTOR_BYTES as u64;
                match bytes.saturating_sub(start) {
                    0 => break,
                    visible if visible >= SECTOR_BYTES as u64 => {
                        sectors.push((sector, Arc::clone(&whole[&sector])))
                    }
                    visible => sectors.push((sector, options(sector, unsynced, visible as usize))),
                }
            }
            let count = product(sectors.iter().map(|(_, options)| options.len() as u64));
            LengthOutcomes { bytes, sectors, count }
        };
        let lengths: Vec<LengthOutcomes> = lengths(file, detail.lengths).into_iter().map(of_length).collect();
        let count = lengths.iter().fold(0, |sum: u64, length| sum.saturating_add(length.count));
        Self { ino, lengths, count }
    }

    fn state(&self, file: &FileNode, mut index: u64) -> FileNode {
        for length in &self.lengths {
            if index >= length.count {
                index -= length.count;
                continue;
            }
            let mut content = file.content.clone();
            for (sector, options) in &length.sectors {
                let bytes = &options[(index % options.len() as u64) as usize];
                if content.sector(*sector) != bytes {
                    content.replace_sector(*sector, bytes);
                }
                index /= options.len() as u64;
            }
            content.cut_to(length.bytes);
            return FileNode::settled(content);
        }
        unreachable!("an index is below the count, which is the sum over the lengths")
    }
}

/// The synced length, some that the file went through or that end with a sector, and the newest.
fn lengths(file: &FileNode, between_max: usize) -> Vec<u64> {
    let (first, last) = (file.synced_bytes, file.content.bytes());
    let mut between: BTreeSet<u64> =
        file.lengths.iter().copied().filter(|&bytes| bytes > first && bytes < last).collect();
    let middle = (first + last) / 2 / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    if between.len() < between_max && middle > first {
        between.insert(middle);
    }
    let skip = between.len().div_ceil(between_max.max(1)).max(1);
    let mut lengths = vec![first];
    lengths.extend(between.into_iter().step_by(skip).take(between_max));
    if last > first {
        lengths.push(last);
    }
    lengths
}

/// Everything different that a sector may hold, of which the first `visible_bytes` are inside the file.
fn sector_outcomes(
    under: &[Sector],
    unsynced: &Unsynced,
    newest: &Sector,
    visible_bytes: usize,
    tears: usize,
) -> Vec<Sector> {
    let seen = |sector: &Sector| {
        let mut sector = *sector;
        sector[visible_bytes..].fill(0);
        sector
    };
    let newest = seen(newest);
    let under: Vec<Sector> = under.iter().map(seen).collect();
    let mut found = Vec::new();
    let mut add = |sector: Sector| {
        if !found.contains(&sector) {
            found.push(sector);
        }
    };
    under.iter().copied().for_each(&mut add);
    for tear in 0..tears {
        let old = &under[tear % under.len()];
        let differing = |at: &usize| old[*at] != newest[*at];
        let Some(first) = (0..SECTOR_BYTES).find(differing) else { continue };
        let last = (first..SECTOR_BYTES).rev().find(differing).unwrap_or(first);
        let at = first + ((last - first) * (tear + 1)).div_ceil(tears + 1);
        add(torn(old, &newest, at, true));
        add(torn(old, &newest, at, false));
    }
    for old in &under {
        look_alikes(old, &newest).take(tears).for_each(|at| add(torn(old, &newest, at, true)));
    }
    unsynced.older.iter().map(|older| seen(older)).for_each(&mut add);
    add(newest);
    found
}

/// A sector of which one side of `at` was written when the power failed.
pub(super) fn torn(old: &Sector, new: &Sector, at: usize, front_is_new: bool) -> Sector {
    let (front, back) = if front_is_new { (new, old) } else { (old, new) };
    let mut sector = *front;
    sector[at..].copy_from_slice(&back[at..]);
    sector
}

/// How many bytes must agree for two places to look alike.
const ALIKE_BYTES: usize = 4;

/// Where both begin to agree: there a frame of each may start, and a tear just there joins what belongs to neither.
pub(super) fn look_alikes(old: &Sector, new: &Sector) -> impl Iterator<Item = usize> {
    (1..=SECTOR_BYTES - ALIKE_BYTES).filter(|&at| {
        let alike = &old[at..at + ALIKE_BYTES];
        old[at - 1] != new[at - 1]
            && alike == &new[at..at + ALIKE_BYTES]
            && alike.iter().any(|&byte| byte != 0)
    })
}
