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
    /// What `step` waits for. `None` is the strongest level of the storage: `power` on a local disk.
    pub level: Option<Level>,
    /// How long a step waits for a disk that is full or fails, before it returns an error.
    pub stall: Duration,
    /// How long an owner may be silent before it counts as dead.
    pub lease: Duration,
    /// A segment is sealed when it has this length.
    pub segment_bytes_max: u64,
    /// How many bytes may wait to be written. When the queue is full, callers wait.
    pub queue_bytes_max: usize,
    /// How much memory the index of known values may take.
    pub index_bytes_max: usize,
    /// `kill`-level steps are synced in the background after this time.
    pub background_sync: Duration,
    /// Whether a background thread commits. Without it, every call commits before it returns.
    pub background: bool,
    /// Whether the committer compresses short steps that are submitted without waiting. This helps callers that share
    /// one thread, such as the tasks of an event loop. Callers that have their own threads should compress there.
    pub compress_late: bool,
    /// A thread that waits for the disk calls this now and then. If it returns true, the wait ends with
    /// [`crate::Error::Interrupted`]; the writing continues.
    pub interrupt: Option<fn() -> bool>,
    /// Whether a compression dictionary is trained from the records.
    pub dictionary: bool,
    /// Which rule this store breaks on purpose, for tests that must notice.
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
    /// Sets what `step` waits for. `None` is the default of the storage.
    pub fn level(mut self, level: impl Into<Option<Level>>) -> Self {
        self.level = level.into();
        self
    }

    /// Sets how long a step waits for a disk that is full or fails.
    pub fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Sets how long an owner may be silent before it counts as dead.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the length at which a segment is sealed.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Sets how many bytes may wait to be written before callers have to wait.
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

    /// Sets the function that a thread calls while it waits for the disk; if it returns true, the wait ends.
    pub fn interrupt(mut self, interrupt: fn() -> bool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Sets whether a compression dictionary is trained from the records.
    pub fn dictionary(mut self, dictionary: bool) -> Self {
        self.dictionary = dictionary;
        self
    }

    /// Breaks a rule on purpose, for tests that must notice.
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

/// One function for each broken rule. Outside of tests each is a constant `false`, and costs nothing.
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
    is_broken_read_trusts_unsettled => ReadTrustsUnsettled,
    is_broken_delete_before_manifest => DeleteBeforeManifest,
    is_broken_prune_looks_once => PruneLooksOnce,
    is_broken_open_looks_once => OpenLooksOnce,
    is_broken_close_by_evidence => CloseByEvidence,
    is_broken_pass_over_by_evidence => PassOverByEvidence,
    is_broken_act_on_what_was_known => ActOnWhatWasKnown,
    is_broken_scan_is_proof => ScanIsProof,
    is_broken_note_without_look => NoteWithoutLook,
    is_broken_tell_what_is_seen => TellWhatIsSeen,
}

/// Rules that a test can break. Each broken variant was once the obvious implementation; the crash tests must catch
/// every one. What storage can lie about is a lying file system (`disk/sim/lies`); a variant here that the engine asks
/// for is one of a protocol: who decides, who looks first, what counts as proof, what an older version left out.
#[cfg(feature = "simulate")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Steps are acknowledged when they are written, not when they are synced.
    AcknowledgeBeforeSync,
    /// The directory is not synced when a segment gets its name.
    SkipDirectorySync,
    /// Every segment has the same salt.
    NoSalt,
    /// A caller refers to a value as soon as it has seen it, before the value has a place in the log.
    CallerDecides,
    /// Names that must be exclusive are given by `rename` instead of `link`.
    RenameInsteadOfLink,
    /// A taker reads what it inherits before it claims.
    ReadBeforeClaim,
    /// A taker posts to the earlier owners only after it has read.
    PostAfterRead,
    /// A taker posts to the last owner only.
    PostToLastOnly,
    /// A claim without a base counts as an attempt that recorded nothing.
    BaselessIsEmpty,
    /// A taker does not copy inherited records that may not be synced.
    NoCopy,
    /// A freeze reads the stream before it posts to the writers.
    FreezeReadsFirst,
    /// The first `put` of a process checks whether the stream is frozen before it claims, not after.
    PutLooksFirst,
    /// A freeze does not copy entries that may not be synced.
    FreezeCopiesNothing,
    /// A freeze reads only what the logs say is synced.
    FreezeReadsClean,
    /// A reader of a stream does not look again at entries that their writers may still give up.
    ReadTrustsUnsettled,
    /// `compact` deletes the old logs before the manifest names them.
    DeleteBeforeManifest,
    /// `compact` acts on a manifest whose name is not synced yet.
    ManifestWithoutSync,
    /// `prune` does not check a second time who owns the episodes that it deletes.
    PruneLooksOnce,
    /// Opening an episode does not check a second time whether it was pruned.
    OpenLooksOnce,
    /// `compact` and `prune` replace logs of writers that seem gone, without asking them.
    CloseByEvidence,
    /// A claim whose taker seems gone is passed over without a void base, so it may still become an attempt.
    PassOverByEvidence,
    /// A takeover or `reap` uses what it had read before, because the writer seems gone.
    ActOnWhatWasKnown,
    /// A SCAN card counts as proof that the writer synced.
    ScanIsProof,
    /// A note is recorded without checking that its target exists, as older versions did.
    NoteWithoutLook,
    /// A follower reports what a writer that seems gone has written, although it may still be undone.
    TellWhatIsSeen,
}
