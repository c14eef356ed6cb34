//! What can be set when a store is opened.

use std::time::Duration;

/// What an acknowledged step survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The process dies.
    Kill,
    /// The machine loses power.
    Power,
    /// The machine is gone.
    Machine,
}

impl Level {
    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Power => "power",
            Self::Machine => "machine",
        }
    }
}

/// How a store is opened.
///
/// ```
/// use std::time::Duration;
///
/// use keepstep::{Level, Options};
///
/// let options = Options::default().level(Level::Kill).lease(Duration::from_secs(120));
/// assert_eq!(options.level, Some(Level::Kill));
/// ```
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct Options {
    /// What `step` waits for. None: the strongest that is the default here, `power` on a local disk.
    pub level: Option<Level>,
    /// How long a step waits for a disk that is full or fails before it raises.
    pub stall: Duration,
    /// How long an owner may be silent before it may count as dead.
    pub lease: Duration,
    /// A segment is sealed when it is this long.
    pub segment_bytes_max: u64,
    /// How many bytes may wait to be written before callers wait.
    pub queue_bytes_max: usize,
    /// How much memory the index of known values may take.
    pub index_bytes_max: usize,
    /// `kill`-level steps are synced in the background after this time.
    pub background_sync: Duration,
    /// Whether a thread commits in the background. Without one every call commits before it returns.
    pub background: bool,
    /// Whether short steps that are submitted, and not waited for, are compressed by the committer: for callers that share
    /// one thread, as the tasks of an event loop do. Callers with threads of their own compress best themselves.
    pub compress_late: bool,
    /// Asked now and then by a caller's thread that waits for the disk: true ends the wait with
    /// [`crate::Error::Interrupted`]. What was handed over goes on being written.
    pub interrupt: Option<fn() -> bool>,
    /// Whether a dictionary is trained from what was recorded.
    pub dictionary: bool,
    /// How this store is broken on purpose, for tests that must notice.
    #[cfg(feature = "simulate")]
    pub broken: Option<Broken>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: None,
            stall: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            segment_bytes_max: 64 << 20,
            queue_bytes_max: 32 << 20,
            index_bytes_max: 64 << 20,
            background_sync: Duration::from_millis(100),
            background: true,
            compress_late: false,
            interrupt: None,
            dictionary: true,
            #[cfg(feature = "simulate")]
            broken: None,
        }
    }
}

impl Options {
    /// Sets what `step` waits for; `None` is the default of this storage.
    pub fn level(mut self, level: impl Into<Option<Level>>) -> Self {
        self.level = level.into();
        self
    }

    /// Sets how long a step waits for a disk that is full or fails.
    pub fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Sets how long an owner may be silent before it may count as dead.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long a segment becomes before it is sealed.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Sets how many bytes may wait to be written before callers wait.
    pub fn queue_bytes_max(mut self, bytes: usize) -> Self {
        self.queue_bytes_max = bytes;
        self
    }

    /// Sets how much memory the index of known values may take.
    pub fn index_bytes_max(mut self, bytes: usize) -> Self {
        self.index_bytes_max = bytes;
        self
    }

    /// Sets after what time `kill`-level steps are synced in the background.
    pub fn background_sync(mut self, after: Duration) -> Self {
        self.background_sync = after;
        self
    }

    /// Sets whether a thread commits in the background.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Sets whether the committer compresses short steps that are submitted and not waited for.
    pub fn compress_late(mut self, compress_late: bool) -> Self {
        self.compress_late = compress_late;
        self
    }

    /// Sets what a thread that waits for the disk asks now and then: true ends the wait.
    pub fn interrupt(mut self, interrupt: fn() -> bool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Sets whether a dictionary is trained from what was recorded.
    pub fn dictionary(mut self, dictionary: bool) -> Self {
        self.dictionary = dictionary;
        self
    }

    /// Breaks the store on purpose, for tests that must notice.
    #[cfg(feature = "simulate")]
    pub fn broken(mut self, broken: impl Into<Option<Broken>>) -> Self {
        self.broken = broken.into();
        self
    }

    #[cfg(feature = "simulate")]
    fn is_broken(&self, way: Broken) -> bool {
        self.broken == Some(way)
    }
}

/// One question for each way to get it wrong; always "no" outside of tests, and then no code at all.
macro_rules! broken {
    ($($name:ident => $way:ident),* $(,)?) => {
        impl Options {
            $(
                #[cfg(feature = "simulate")]
                pub(crate) fn $name(&self) -> bool { self.is_broken(Broken::$way) }
                #[cfg(not(feature = "simulate"))]
                pub(crate) const fn $name(&self) -> bool { false }
            )*
        }
    };
}

broken! {
    is_broken_no_salt => NoSalt,
    is_broken_no_synced_to => NoSyncedTo,
    is_broken_caller_decides => CallerDecides,
    is_broken_read_before_claim => ReadBeforeClaim,
    is_broken_post_after_read => PostAfterRead,
    is_broken_post_to_last_only => PostToLastOnly,
    is_broken_baseless_is_empty => BaselessIsEmpty,
    is_broken_no_copy => NoCopy,
    is_broken_freeze_reads_first => FreezeReadsFirst,
    is_broken_put_looks_first => PutLooksFirst,
    is_broken_freeze_copies_nothing => FreezeCopiesNothing,
    is_broken_freeze_reads_clean => FreezeReadsClean,
    is_broken_delete_before_manifest => DeleteBeforeManifest,
    is_broken_prune_looks_once => PruneLooksOnce,
    is_broken_open_looks_once => OpenLooksOnce,
    is_broken_close_by_evidence => CloseByEvidence,
    is_broken_pass_over_by_evidence => PassOverByEvidence,
    is_broken_act_on_what_was_known => ActOnWhatWasKnown,
    is_broken_no_reward_is_zero => NoRewardIsZero,
    is_broken_compact_forgets_origins => CompactForgetsOrigins,
    is_broken_scan_is_proof => ScanIsProof,
    is_broken_note_without_look => NoteWithoutLook,
}

/// Ways to get it wrong. Each was the obvious thing to do once; the crash tests must catch every one.
#[cfg(feature = "simulate")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Steps are acknowledged when they are written, not when they are synced.
    AcknowledgeBeforeSync,
    /// The directory is not synced when a segment gets its name.
    SkipDirectorySync,
    /// Every segment has the same salt.
    NoSalt,
    /// Commits always say that nothing was synced.
    NoSyncedTo,
    /// A caller refers to a value as soon as it has seen it, before it has a place.
    CallerDecides,
    /// Names that must be exclusive are given by rename.
    RenameInsteadOfLink,
    /// A taker reads what it inherits before it claims.
    ReadBeforeClaim,
    /// A taker tells the earlier owners only after it has read.
    PostAfterRead,
    /// A taker tells only the last owner.
    PostToLastOnly,
    /// A claim without a base counts as an attempt that recorded nothing.
    BaselessIsEmpty,
    /// A taker rests on what nobody is known to have synced.
    NoCopy,
    /// Whoever freezes a stream reads it before its putters are told.
    FreezeReadsFirst,
    /// Whoever puts a first entry looks whether the stream is closed before it claims.
    PutLooksFirst,
    /// A freeze rests on entries that may not be synced.
    FreezeCopiesNothing,
    /// Whoever freezes a stream reads only what the logs say is synced.
    FreezeReadsClean,
    /// `compact` deletes what it replaces before the manifest says so.
    DeleteBeforeManifest,
    /// `compact` acts on a manifest whose name is not safe yet.
    ManifestWithoutSync,
    /// `prune` does not look again who has what it is about to delete.
    PruneLooksOnce,
    /// Whoever opens an episode does not look again whether it was pruned since.
    OpenLooksOnce,
    /// `compact` and `prune` replace logs because their writers seem gone: nobody is asked.
    CloseByEvidence,
    /// A claim whose taker seems gone is passed over, and may still become an attempt.
    PassOverByEvidence,
    /// Whoever takes over or reaps trusts what it knew of a log whose writer seems gone.
    ActOnWhatWasKnown,
    /// A writer sums up by a rule of its own: a return where no reward was given.
    NoRewardIsZero,
    /// `compact` does not say where the records that it moves stood before.
    CompactForgetsOrigins,
    /// What somebody scanned, synced and wrote down passes for what its writer synced.
    ScanIsProof,
    /// A note is taken whatever it is about, as older versions did.
    NoteWithoutLook,
}
