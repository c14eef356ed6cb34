//! Subjects: what records belong to. An attempt at an episode, a stream, or a run.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::kind::{Effect, Kind};

use crate::error::Error;
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

/// The state of a subject. The recording handle and the committer share it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) key: SubjectKey,
    pub(crate) name: SubjectName,
    /// Rises when a record was not written: the records that were queued after it must fail too.
    epoch: AtomicU32,
    /// Up to which epoch whoever records has heard of the failures. Nothing is recorded behind one that nobody has
    /// heard of: its acknowledgement would cover a step that is not there.
    heard: AtomicU32,
    /// The newest failure.
    failure: Mutex<Option<Error>>,
    /// How many steps were committed.
    steps: AtomicU64,
    /// True if its BEGIN was committed.
    begun: AtomicBool,
    /// The attempt of the process that owns it now, if it was refused because of that; else 0.
    fenced_by: AtomicU32,
    /// True if a turn has an intent and no result.
    pending: AtomicBool,
    /// The sequence number of its first record in this log.
    pub(crate) first_seq: u32,
}

/// Where an attempt resumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// How many steps it inherits.
    pub(crate) steps: u64,
    /// True if it inherits a pending turn.
    pub(crate) is_pending: bool,
}

impl Subject {
    pub(crate) fn new(key: SubjectKey, name: SubjectName) -> Self {
        Self {
            key,
            name,
            epoch: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            failure: Mutex::new(None),
            steps: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            fenced_by: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            first_seq: 0,
        }
    }

    /// An attempt that resumes another one.
    pub(crate) fn starting(self, start: Start) -> Self {
        let (steps, pending) = (AtomicU64::new(start.steps), AtomicBool::new(start.is_pending));
        Self { steps, pending, ..self }
    }

    /// A copy of records whose sequence numbers begin here.
    pub(crate) fn at_seq(self, first_seq: u32) -> Self {
        Self { first_seq, ..self }
    }

    /// Its name, for messages.
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

    pub(crate) fn next_epoch(&self, failed: u32, why: &Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        // Several records of one epoch may fail; the epoch ends once, with the first.
        if self.epoch.compare_exchange(failed, failed + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            *failure = Some(why.clone());
        }
    }

    /// Whoever records has heard that a record of this epoch failed.
    pub(crate) fn hear(&self, failed: u32) {
        self.heard.fetch_max(failed + 1, Ordering::AcqRel);
    }

    /// The failure before this epoch, if nobody has heard of it. From now on somebody has.
    pub(crate) fn take_unheard(&self, epoch: u32) -> Option<Error> {
        if self.heard.fetch_max(epoch, Ordering::AcqRel) >= epoch {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// The newer attempt that it lost its episode or stream to, once that is known.
    pub(crate) fn fenced_by(&self) -> Option<u32> {
        Some(self.fenced_by.load(Ordering::Acquire)).filter(|attempt| *attempt > 0)
    }

    /// It lost its episode or stream to a newer attempt: the error for whoever records here.
    pub(crate) fn fence(&self, attempt: u32) -> Error {
        self.fenced_by.store(attempt, Ordering::Release);
        self.fenced_error(attempt)
    }

    pub(crate) fn fenced_error(&self, attempt: u32) -> Error {
        let SubjectKey { id: episode, attempt: mine, .. } = self.key;
        let is_stream = matches!(self.key.what, What::Stream);
        Error::Fenced { what: self.called(), episode, mine, attempt, is_stream }
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
    /// The summary, in a segment, of an attempt of this name that enters it with this many steps.
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
    /// Whether a turn is pending from here on, if the record changes that.
    pub(crate) pending: Option<bool>,
}

impl Progress {
    /// The progress of a record of this kind, before its fields are known.
    pub(crate) fn of(kind: Kind) -> Self {
        let pending = match kind.effect() {
            Effect::OpensTurn => Some(true),
            Effect::CompletesTurn | Effect::ClosesTurn => Some(false),
            Effect::CompletesStep | Effect::None => None,
        };
        Self { part: SummaryPart::default(), pending }
    }
}
