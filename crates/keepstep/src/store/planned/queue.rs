//! The planned episodes that remain, as this process knows them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use keepstep_format::Id;

use crate::error::Error;
use crate::read::NoteIndex;
use crate::store::planned::repeats::Failures;

/// An episode that needs work.
#[derive(Debug, Clone)]
pub(in crate::store) struct Candidate {
    /// Its index among the planned episodes.
    pub(in crate::store) index: usize,
    pub(in crate::store) episode: Id,
    /// The attempt to claim.
    pub(in crate::store) attempt: u32,
    /// How many attempts began.
    pub(in crate::store) attempts: u32,
    /// How often in a row it failed without progress; or, if this process left it, how often it was left so.
    pub(in crate::store) in_a_row: u32,
    /// When this process saw it fail. Its rest begins then.
    pub(in crate::store) seen_us: Option<i64>,
    pub(in crate::store) why: Arc<str>,
}

/// The planned episodes that remain, by the work that they need.
#[derive(Debug, Default)]
pub(in crate::store) struct Queue {
    pub(in crate::store) episodes: Vec<Planned>,
    pub(in crate::store) by_id: HashMap<Id, usize>,
    /// How many samples of each planned task are in this queue.
    pub(in crate::store) placed: Vec<u32>,
    pub(in crate::store) cards: Cards,
    /// Read if the plan needs notes.
    pub(in crate::store) notes: Option<NoteIndex>,
    pub(in crate::store) interrupted: VecDeque<Candidate>,
    /// In the order in which this process yields them.
    pub(in crate::store) new: VecDeque<usize>,
    pub(in crate::store) unscored: VecDeque<Candidate>,
    pub(in crate::store) errored: VecDeque<Candidate>,
    /// Over; yielded only on request.
    pub(in crate::store) truncated: VecDeque<Candidate>,
    /// Left by this process. They come late, so that it does not repeat them for ever.
    pub(in crate::store) own: VecDeque<Candidate>,
    /// Episodes that cannot be read, with the error.
    pub(in crate::store) troubles: Vec<(usize, Error)>,
    /// Episodes that were reported as given up, with the number of their failures.
    pub(in crate::store) told: HashSet<(Id, u32)>,
    /// How often the survey was made.
    pub(in crate::store) round: u64,
    pub(in crate::store) looked_us: i64,
    pub(in crate::store) failures: Failures,
}

#[derive(Debug)]
pub(in crate::store) struct Planned {
    pub(in crate::store) id: Id,
    pub(in crate::store) task: u32,
    pub(in crate::store) sample: u32,
}

/// What was read from cards. Cards never change.
#[derive(Debug, Default)]
pub(in crate::store) struct Cards {
    pub(in crate::store) owners: HashMap<(Id, u32), Id>,
    pub(in crate::store) based: HashMap<(Id, u32), Known>,
    /// Episodes that are scored: the attempt that counted, and how many notes were needed. A plan may need more notes
    /// later, and never fewer.
    pub(in crate::store) scored: HashSet<(Id, u32, usize)>,
}

/// What matters of a base.
#[derive(Debug, Clone)]
pub(in crate::store) enum Known {
    /// The attempt began. `adopted` is the end of the previous attempt, if the base adopted one.
    Began { adopted: Option<String>, inherited: u64, time: i64 },
    /// A void base: the attempt never begins.
    Void,
}
