//! The planned episodes that remain, as this process knows them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use keepstep_format::Id;

use crate::error::Error;
use crate::read::NoteIndex;
use crate::store::planned::repeats::Failures;

/// Work to be done on an episode.
#[derive(Debug, Clone)]
pub(in crate::store) struct Candidate {
    /// Which of the planned ones.
    pub(in crate::store) index: usize,
    pub(in crate::store) episode: Id,
    /// The attempt that has to be claimed.
    pub(in crate::store) attempt: u32,
    /// How many attempts really began.
    pub(in crate::store) attempts: u32,
    /// How often in a row it failed without getting on; or, if this process left it, was left so.
    pub(in crate::store) in_a_row: u32,
    /// When this process saw it fail: it rests from then on.
    pub(in crate::store) seen_us: Option<i64>,
    pub(in crate::store) why: Arc<str>,
}

/// The planned episodes that remain, by what is to be done with them.
#[derive(Debug, Default)]
pub(in crate::store) struct Queue {
    pub(in crate::store) episodes: Vec<Planned>,
    pub(in crate::store) by_id: HashMap<Id, usize>,
    /// How many samples of each planned task are among the episodes.
    pub(in crate::store) placed: Vec<u32>,
    pub(in crate::store) cards: Cards,
    /// Read if the plan needs any.
    pub(in crate::store) notes: Option<NoteIndex>,
    pub(in crate::store) interrupted: VecDeque<Candidate>,
    /// In the order in which this process walks them.
    pub(in crate::store) new: VecDeque<usize>,
    pub(in crate::store) unscored: VecDeque<Candidate>,
    pub(in crate::store) errored: VecDeque<Candidate>,
    /// Over, unless somebody asks for more.
    pub(in crate::store) truncated: VecDeque<Candidate>,
    /// Interrupted by this very process: they come last, or it could go round in circles.
    pub(in crate::store) own: VecDeque<Candidate>,
    /// Episodes of which something cannot be read.
    pub(in crate::store) troubles: Vec<(usize, Error)>,
    /// What was said to be given up, with how often it had failed.
    pub(in crate::store) told: HashSet<(Id, u32)>,
    /// How often it was looked at everything.
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

/// What cards said that had to be read. They never change.
#[derive(Debug, Default)]
pub(in crate::store) struct Cards {
    pub(in crate::store) owners: HashMap<(Id, u32), Id>,
    pub(in crate::store) based: HashMap<(Id, u32), Known>,
    /// With the attempt that counted then.
    /// With how many notes: a plan may need more later, and never fewer.
    pub(in crate::store) scored: HashSet<(Id, u32, usize)>,
}

/// What a base says, as far as it matters here.
#[derive(Debug, Clone)]
pub(in crate::store) enum Known {
    /// The attempt began; the one before had come to its end, if it says how.
    Began { adopted: Option<String>, inherited: u64, time: i64 },
    /// It never will.
    Void,
}
