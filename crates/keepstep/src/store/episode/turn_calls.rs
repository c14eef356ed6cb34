//! The calls of a turn: their numbers, what they returned, and which way the program went through them.
//!
//! Calls without a key are told apart by their order. That holds only while a program goes the same way: if a call
//! failed before and does not now, its fallback may not be made, and the next call would get the fallback's number. So
//! each call says which earlier ones had failed when it began. If others have failed now, it gets its recorded result
//! only if the function shows that it is the same call.

use std::collections::BTreeSet;
use std::ops::Range;

use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::read::{Call, MadeBy};
use crate::store::episode::same;
use crate::write::{CallKey, Entry, Receipt};

/// How many failed calls a call names. One that names so many is taken for one that went another way.
pub(super) const FAILED_MAX: usize = 64;

/// Whether a call is recorded already.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    /// It is, and returned this.
    Result(Value),
    /// It is. It returned an awaitable, which gave this.
    Awaited(Value),
    /// It is not, or it raised. Make the call, and record its result under this key.
    New(CallKey),
}

/// The function of a call, as far as one process can tell another which one it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CalledFunction {
    /// Its name, and what tells it apart from others of that name.
    pub name: String,
    /// True if no other function of the program has that name.
    pub is_certain: bool,
}

impl CalledFunction {
    /// A function of that name.
    pub fn new(name: impl Into<String>, is_certain: bool) -> Self {
        Self { name: name.into(), is_certain }
    }
}

/// The calls of a turn.
pub(super) struct TurnCalls {
    /// Which turn.
    pub(super) turn: u64,
    /// Those that returned.
    pub(super) recorded: Vec<Recorded>,
    pub(super) next_ordinal: u64,
    /// With which ordinal the calls of this turn begin. Those of a turn that was discarded come before.
    pub(super) first_ordinal: u64,
    /// How many of its calls were made before the intent. After an adoption, calls are numbered after these.
    pub(super) said_behind: u64,
    /// The ordinal behind all that were given out in this turn, in whatever try.
    pub(super) given_behind: u64,
    /// The calls of this try that failed, and were not tried again since.
    pub(super) failed: BTreeSet<u64>,
    /// Ordinals that this try passed over, when it adopted the turn.
    skipped: Range<u64>,
}

impl Default for TurnCalls {
    fn default() -> Self {
        Self::at(u64::MAX)
    }
}

/// Whether a program goes the way that it went when a call was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The same calls have failed.
    Same,
    /// Others have failed.
    Other,
    /// Others have failed, and one that had failed is still running.
    Open,
}

impl TurnCalls {
    /// A turn without calls.
    pub(super) fn at(turn: u64) -> Self {
        Self {
            turn,
            recorded: Vec::new(),
            next_ordinal: 0,
            first_ordinal: 0,
            said_behind: 0,
            given_behind: 0,
            failed: BTreeSet::new(),
            skipped: 0..0,
        }
    }

    /// True if nothing would be lost without it.
    pub(super) fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.next_ordinal.max(self.given_behind) == 0
    }

    /// Forgets the results that were refused.
    pub(super) fn forget_refused(&mut self) {
        self.recorded.retain(|call| !call.receipt.as_ref().is_some_and(Receipt::has_failed));
    }

    /// They are made once more, or those of another turn of this index follow.
    pub(super) fn begin_try(&mut self) {
        // A turn that was left has given out the later ordinals all the same.
        self.given_behind = self.given_behind.max(self.next_ordinal);
        self.next_ordinal = self.first_ordinal;
        self.failed.clear();
        self.skipped = 0..0;
    }

    /// The turn is adopted: the calls before its intent are not made again, or were.
    pub(super) fn go_behind_intent(&mut self) {
        if self.next_ordinal < self.said_behind {
            self.skipped = self.next_ordinal..self.said_behind;
            self.next_ordinal = self.said_behind;
        }
    }

    /// The ordinal behind those of all calls of this turn: recorded, raised or still running.
    pub(super) fn behind_all(&self) -> u64 {
        let recorded = self.recorded.iter().filter_map(Recorded::ordinal).map(|it| it + 1);
        recorded.fold(self.next_ordinal.max(self.given_behind), u64::max)
    }

    /// The recorded call of that key. If there are two, because one came too late, the loop got the first one.
    pub(super) fn find(&self, key: &CallKey, name: &str) -> Option<&Recorded> {
        self.recorded.iter().find(|call| call.key == *key && call.is_meant(name))
    }

    /// The calls that have failed, for a call that begins now.
    pub(super) fn failed_now(&self) -> Vec<u64> {
        self.failed.iter().copied().take(FAILED_MAX).collect()
    }

    /// True if a recorded call is certainly the one that begins now, with the same name and arguments. `now` is its
    /// function.
    pub(super) fn is_surely(&self, found: &Recorded, now: Option<&CalledFunction>) -> bool {
        let way = self.way_of(found);
        if way == Way::Same {
            return true;
        }
        let (Some(before), Some(now)) = (&found.function, now) else { return false };
        // Two methods of one class, or two closures of one function, have one name: either may be meant.
        *before == now.name && (now.is_certain || (way == Way::Other && self.is_only_one(found)))
    }

    fn way_of(&self, found: &Recorded) -> Way {
        let Some(ordinal) = found.ordinal() else { return Way::Same };
        let before = &found.behind_failed;
        let is_begun = |it: &u64| {
            (self.first_ordinal..ordinal.min(self.next_ordinal)).contains(it) && !self.skipped.contains(it)
        };
        let mut better = before.iter().filter(|it| is_begun(it) && !self.failed.contains(it));
        if found.is_old {
            // Whether it had begun before the others failed is not recorded: what runs still may have run then.
            return if better.any(|it| self.is_answered(*it)) { Way::Other } else { Way::Same };
        }
        let is_open = better.clone().any(|it| !self.is_answered(*it));
        let differs = better.next().is_some() || self.failed.iter().any(|it| !before.contains(it));
        match (is_open, differs || before.len() >= FAILED_MAX) {
            (_, false) => Way::Same,
            (false, true) => Way::Other,
            (true, true) => Way::Open,
        }
    }

    fn is_answered(&self, ordinal: u64) -> bool {
        self.recorded.iter().any(|call| call.ordinal() == Some(ordinal))
    }

    /// True if no other call of the turn without a key has the same name, arguments and function.
    fn is_only_one(&self, found: &Recorded) -> bool {
        let is_like = |it: &&Recorded| {
            // Those of a turn that was discarded are not meant by anybody.
            it.ordinal().is_some_and(|it| it >= self.first_ordinal && Some(it) != found.ordinal())
                && it.name == found.name
                && it.function == found.function
                && same::check(0, "", &it.arguments, &found.arguments).is_ok()
        };
        !self.recorded.iter().any(|it| is_like(&it))
    }
}

/// A call that returned.
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) key: CallKey,
    pub(super) arguments: Value,
    result: Value,
    awaited: bool,
    /// The function, if it is known.
    pub(super) function: Option<String>,
    /// The calls that had failed when it began.
    behind_failed: Vec<u64>,
    /// True if it does not say so itself: the records before it do.
    is_old: bool,
    /// Its receipt, if this attempt recorded it.
    pub(super) receipt: Option<Receipt>,
}

/// Which calls have failed and have no result, as far as records show: for calls that do not say it.
#[derive(Default)]
pub(super) struct WaysOfOld {
    failed: BTreeSet<u64>,
}

impl Recorded {
    /// The call that an entry records, if it returned.
    pub(super) fn of_entry(entry: &Entry) -> Option<Self> {
        let get = |number| entry.step.get(number);
        let key = match get(fields::KEY).and_then(Value::as_str) {
            Some(key) => CallKey::Key(key.to_owned()),
            None => CallKey::Ordinal(u64::try_from(get(fields::ORDINAL)?.as_int()?).ok()?),
        };
        let made_by = get(fields::MADE_BY).and_then(MadeBy::of);
        let (is_old, MadeBy { function, behind_failed }) = (made_by.is_none(), made_by.unwrap_or_default());
        Some(Self {
            name: get(fields::NAME)?.as_str()?.to_owned(),
            key,
            arguments: get(fields::ARGUMENTS)?.clone(),
            result: get(fields::RESULT)?.clone(),
            awaited: get(fields::AWAITED).is_some(),
            function,
            behind_failed,
            is_old,
            receipt: None,
        })
    }

    /// `None` if the call raised, or if a part of it is damaged: such calls are not replayed.
    pub(super) fn of(call: Call, ways: &mut WaysOfOld) -> Option<Self> {
        let is_whole = call.error.is_none() && call.damaged.is_empty();
        let key = match (call.key, call.ordinal) {
            (Some(key), _) => CallKey::Key(key),
            (None, ordinal) => CallKey::Ordinal(u64::try_from(ordinal?).ok()?),
        };
        if let CallKey::Ordinal(ordinal) = key {
            if is_whole {
                ways.failed.remove(&ordinal)
            } else {
                ways.failed.insert(ordinal)
            };
        }
        let (name, arguments) = (call.name?, call.arguments.unwrap_or(Value::Null));
        let (result, awaited) = (call.result.unwrap_or(Value::Null), call.awaited);
        let is_old = call.made_by.is_none();
        let MadeBy { function, behind_failed } = call.made_by.unwrap_or_else(|| MadeBy {
            function: None,
            behind_failed: ways.failed.iter().copied().collect(),
        });
        is_whole.then_some(Self {
            name,
            key,
            arguments,
            result,
            awaited,
            function,
            behind_failed,
            is_old,
            receipt: None,
        })
    }

    pub(super) fn known(&self) -> Known {
        let result = self.result.clone();
        if self.awaited { Known::Awaited(result) } else { Known::Result(result) }
    }

    fn ordinal(&self) -> Option<u64> {
        if let CallKey::Ordinal(ordinal) = self.key { Some(ordinal) } else { None }
    }

    /// A key is unique among the calls of one name; ordinals count all calls of a turn.
    fn is_meant(&self, name: &str) -> bool {
        matches!(self.key, CallKey::Ordinal(_)) || self.name == name
    }
}
