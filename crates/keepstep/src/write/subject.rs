//! What records belong to: an attempt at an episode, a stream, or the run as a whole.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::kind::{Effect, Kind};

use crate::segment::Summary;
use crate::segment::summary::SummaryPart;

/// What a record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SubjectKey {
    pub(crate) what: What,
    pub(crate) id: Id,
    pub(crate) attempt: u32,
}

/// The name of an episode, as a list shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SubjectName {
    pub(crate) run: String,
    pub(crate) generation_id: Id,
    pub(crate) task: String,
    pub(crate) iteration: i64,
    pub(crate) sample: i64,
}

/// Shared by the handle that records and the committer.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) key: SubjectKey,
    pub(crate) name: SubjectName,
    /// Rises when a record was not written: what was queued behind it must fail too.
    epoch: AtomicU32,
    /// Steps that were committed.
    steps: AtomicU64,
    /// Its BEGIN was committed.
    begun: AtomicBool,
    /// It was refused because it is somebody else's now.
    fenced: AtomicBool,
    /// A turn was said and has no result.
    pending: AtomicBool,
    /// The sequence of its first record in this log.
    pub(crate) first_seq: u32,
}

/// Where an attempt goes on from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// How many steps it inherits.
    pub(crate) steps: u64,
    /// It inherits a turn that has no result.
    pub(crate) is_pending: bool,
}

impl Subject {
    pub(crate) fn new(key: SubjectKey, name: SubjectName) -> Self {
        Self {
            key,
            name,
            epoch: AtomicU32::new(0),
            steps: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            first_seq: 0,
        }
    }

    /// An attempt that goes on from another.
    pub(crate) fn starting(self, start: Start) -> Self {
        let (steps, pending) = (AtomicU64::new(start.steps), AtomicBool::new(start.is_pending));
        Self { steps, pending, ..self }
    }

    /// A copy of records that had sequences from here on.
    pub(crate) fn at_seq(self, first_seq: u32) -> Self {
        Self { first_seq, ..self }
    }

    /// What people call it, for messages.
    pub(crate) fn called(&self) -> String {
        let SubjectName { run, task, iteration, sample, .. } = &self.name;
        match self.key.what {
            What::Stream => format!("stream {task:?} of run {run:?}"),
            What::Attempt | What::Copied { .. } if !task.is_empty() => {
                format!("episode {run}/{task}#{iteration}.{sample}")
            }
            What::Attempt | What::Copied { .. } => format!("episode {}", self.key.id),
            What::Run | What::Log => format!("run {run:?}"),
        }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn next_epoch(&self, failed: u32) {
        // Several records of one epoch may fail; it ends once.
        let _ = self.epoch.compare_exchange(failed, failed + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    pub(crate) fn set_fenced(&self) {
        self.fenced.store(true, Ordering::Release);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    pub(crate) fn set_pending(&self, is_pending: bool) {
        self.pending.store(is_pending, Ordering::Release);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    pub(crate) fn set_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::Release);
    }
}

impl SubjectName {
    /// What a segment says of an attempt of this name that comes into it with so many steps.
    pub(crate) fn summary(&self, steps: u64) -> Summary {
        Summary {
            run: Some(self.run.clone()),
            generation_id: Some(self.generation_id),
            task: Some(self.task.clone()),
            iteration: Some(self.iteration),
            sample: Some(self.sample),
            steps,
            ..Summary::default()
        }
    }
}

/// What one record changes for its subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// What it adds to the summary.
    pub(crate) part: SummaryPart,
    /// From here on a turn waits for its result, or no longer does.
    pub(crate) pending: Option<bool>,
}

impl Progress {
    /// Of a record of this kind, before its fields are known.
    pub(crate) fn of(kind: Kind) -> Self {
        let pending = match kind.effect() {
            Effect::OpensTurn => Some(true),
            Effect::CompletesTurn | Effect::ClosesTurn => Some(false),
            Effect::CompletesStep | Effect::None => None,
        };
        Self { part: SummaryPart::default(), pending }
    }
}
