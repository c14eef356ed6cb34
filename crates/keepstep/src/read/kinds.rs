//! What an attempt can record beside its steps: what each kind of record holds, and how it is shown and exported.
//!
//! A new kind without an effect on the steps is a line in `keepstep_format::kind`, a constructor in `write/entry`, and
//! here a table, a variant of [`EpisodeEvent`], and a line wherever the compiler asks for one. What folds, prints or
//! exports events uses the methods below, and needs no change.

use keepstep_format::kind::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use super::item::{DamagedRecord, Gap, Record};
use super::step::RecordedStep;
use crate::segment::cards::as_id;

/// The type of a field that was read.
macro_rules! held {
    (int) => {
        i64
    };
    (text) => {
        String
    };
    (id) => {
        Id
    };
    (any) => {
        Value
    };
}

/// How it is taken from what was recorded.
macro_rules! taken {
    (int $value:expr) => {
        $value.as_int()
    };
    (text $value:expr) => {
        $value.as_str().map(str::to_owned)
    };
    (id $value:expr) => {
        as_id($value)
    };
    (any $value:expr) => {
        Some($value.clone())
    };
}

/// How it is shown: `hidden` ones are not.
macro_rules! shown {
    (hidden $holds:ident $value:expr) => {
        None::<Value>
    };
    (shown id $value:expr) => {
        $value.map(|id| Value::from(id.to_string()))
    };
    (shown $holds:ident $value:expr) => {
        $value.clone().map(Value::from)
    };
}

/// Makes the types of the kinds of the tables below. Fields are listed in the order in which they are shown; what is
/// not a field of the record, or not optional, comes after `+`.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident {
            $($(#[$field_doc:meta])* $field:ident: $shown:ident $holds:ident $constant:ident;)*
        } $(+ { $($(#[$more_doc:meta])* $more:ident: $type:ty = $of:expr;)* })?
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $kind {
            $($(#[$field_doc])* pub $field: Option<held!($holds)>,)*
            $($($(#[$more_doc])* pub $more: $type,)*)?
            /// Names of fields that are lost.
            pub damaged: Vec<&'static str>,
        }

        impl $kind {
            pub(crate) fn of(record: &Record) -> Self {
                Self {
                    $($field: record.get(fields::$constant).and_then(|value| taken!($holds value)),)*
                    $($($more: $of(record),)*)?
                    damaged: record.lost.iter().map(|&number| fields::name(number).unwrap_or("field")).collect(),
                }
            }

            /// Its recorded fields, by name, in the order in which they are shown.
            pub fn fields(&self) -> Vec<(&'static str, Value)> {
                let all = [$((fields::$constant, shown!($shown $holds self.$field))),*];
                all.into_iter().filter_map(|(number, value)| Some((shown_name(number), value?))).collect()
            }
        }
    )*};
}

kinds! {
    /// How an attempt began.
    Begin {
        /// When.
        time: shown int TIME;
        /// The name of its run.
        run: shown text RUN;
        /// The id of its run's generation.
        generation_id: hidden id GENERATION_ID;
        /// The run's generation.
        generation: hidden int GENERATION;
        /// The task.
        task: shown text TASK;
        /// The iteration.
        iteration: shown int ITERATION;
        /// The sample.
        sample: shown int SAMPLE;
        /// The random id that makes an unnamed episode unique.
        unnamed: hidden id UNNAMED;
        /// What it belongs to.
        parent: shown text PARENT;
        /// Data that the caller recorded with the episode.
        meta: shown any META;
        /// The attempt that it resumed.
        resumed: shown int RESUMED;
    }

    /// A side effect whose result was recorded.
    Call {
        /// The turn that it belongs to.
        index: shown int INDEX;
        /// When.
        time: shown int TIME;
        /// What was called.
        name: shown text NAME;
        /// Its key, if it was given one.
        key: shown text KEY;
        /// Its ordinal in the turn, if it has no key.
        ordinal: shown int ORDINAL;
        /// Its arguments.
        arguments: shown any ARGUMENTS;
        /// Its result.
        result: shown any RESULT;
        /// What it raised instead.
        error: shown any ERROR;
    } + {
        /// True if its result was awaited.
        awaited: bool = was_awaited;
        /// The function that was called, and which way the program had gone.
        made_by: Option<MadeBy> = made_by;
    }

    /// A note.
    Note {
        /// The step that it is on, if not the attempt as a whole.
        index: shown int INDEX;
        /// When.
        time: shown int TIME;
        /// Its name.
        name: shown text NAME;
        /// Its value.
        value: shown any VALUE;
        /// Who gave it.
        source: shown text SOURCE;
        /// The episode that it is on, if not this one.
        target: shown id TARGET;
        /// The attempt that it is on, if not this one.
        target_attempt: shown int TARGET_ATTEMPT;
    } + {
        /// Its sequence number. It decides if two notes have the same time.
        seq: u32 = |record: &Record| record.seq;
    }

    /// How an attempt ended.
    End {
        /// When.
        time: shown int TIME;
        /// Why.
        why: shown text WHY;
        /// Which limit was reached.
        limit: shown text LIMIT;
        /// What was raised.
        error: shown any ERROR;
        /// Who recorded it.
        said_by: shown text SAID_BY;
        /// The evidence, if another process found the end.
        evidence: shown any EVIDENCE;
    }
}

/// The name under which a field is shown: times say their unit.
fn shown_name(number: u8) -> &'static str {
    if number == fields::TIME { "time_us" } else { fields::name(number).unwrap_or("field") }
}

/// What is recorded of a call without a key beside its arguments, to tell it apart from another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MadeBy {
    /// The function, if it is known.
    pub function: Option<String>,
    /// The ordinals of earlier calls that had failed when it began, and had not been tried again.
    pub behind_failed: Vec<u64>,
}

impl MadeBy {
    /// What a `made_by` says: the function or null, then ordinals.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let Value::List(said) = value.plain() else { return None };
        let (function, ordinals) = said.split_first()?;
        let ordinals = ordinals.iter().map(|it| u64::try_from(it.as_int()?).ok());
        Some(Self {
            function: function.as_str().map(str::to_owned),
            behind_failed: ordinals.collect::<Option<_>>()?,
        })
    }
}

fn made_by(record: &Record) -> Option<MadeBy> {
    MadeBy::of(record.get(fields::MADE_BY)?)
}

fn was_awaited(record: &Record) -> bool {
    record.get(fields::AWAITED).is_some_and(|it| matches!(it.plain(), Value::Bool(true)))
}

impl End {
    /// True if it makes the step before it the last of the episode.
    pub(super) fn makes_last(&self) -> bool {
        self.why.as_deref().is_some_and(is_final)
    }
}

/// True if the episode is over after this ending.
pub fn is_final(why: &str) -> bool {
    Why::named(why).is_some_and(Why::is_final)
}

/// A turn that was discarded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Discarded {
    /// The turn.
    pub index: i64,
    /// Why it was discarded.
    pub reason: Option<String>,
    /// When.
    pub time: Option<i64>,
    /// Its intent.
    pub step: Option<Box<RecordedStep>>,
}

/// An event of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum EpisodeEvent {
    /// It began.
    Begin(Box<Begin>),
    /// A step was completed.
    Step(Box<RecordedStep>),
    /// A turn was discarded.
    Discarded(Box<Discarded>),
    /// A call was recorded.
    Call(Box<Call>),
    /// A note was added.
    Note(Box<Note>),
    /// It ended.
    End(Box<End>),
    /// A record that belongs to no step cannot be read, or has a kind that this version does not know.
    Damaged(DamagedRecord),
    /// Records are missing.
    Gap(Gap),
}

/// An event as it is shown and exported.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Described {
    /// What it is, as people write it: `step`, `call`, `note`.
    pub what: &'static str,
    /// Its recorded fields by name, in the order in which they are shown.
    pub fields: Vec<(&'static str, Value)>,
    /// Names of fields that are lost, in whole or in part.
    pub damaged: Vec<&'static str>,
    /// Whether an export has a line for it.
    pub exported: Exported,
}

/// Whether an export has a line for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exported {
    /// Always.
    Always,
    /// If calls are asked for.
    WithCalls,
    /// No: the other lines say it, or notes that are asked for.
    Never,
}

impl EpisodeEvent {
    /// The event of a record that has no effect on the steps. `None` if it has one, or is not of an attempt.
    pub(super) fn beside(kind: Kind, record: &Record) -> Option<Self> {
        match kind {
            Kind::Begin => Some(Self::Begin(Box::new(Begin::of(record)))),
            Kind::Call => Some(Self::Call(Box::new(Call::of(record)))),
            Kind::Note => Some(Self::Note(Box::new(Note::of(record)))),
            Kind::End => Some(Self::End(Box::new(End::of(record)))),
            Kind::First | Kind::Step | Kind::Intent | Kind::Result | Kind::Discard | Kind::Item => None,
            Kind::Put
            | Kind::Bind
            | Kind::Commit
            | Kind::Chunk
            | Kind::Value
            | Kind::Dict
            | Kind::Footer
            | Kind::Lists
            | Kind::Block => None,
        }
    }

    /// How it is shown and exported.
    pub fn describe(&self) -> Described {
        let (what, fields, damaged, exported) = match self {
            Self::Begin(it) => ("begin", it.fields(), &*it.damaged, Exported::Never),
            Self::Step(it) => ("step", fields_of_step(it), &*it.damaged, Exported::Always),
            Self::Discarded(it) => ("discarded", it.fields(), it.damaged(), Exported::Never),
            Self::Call(it) => ("call", it.fields(), &*it.damaged, Exported::WithCalls),
            Self::Note(it) => ("note", it.fields(), &*it.damaged, Exported::Never),
            Self::End(it) => ("end", it.fields(), &*it.damaged, Exported::Never),
            // A kind that only a later version knows is not damaged, and cannot be shown either.
            Self::Damaged(it) if it.is_known() => ("damaged", it.fields(), &[][..], Exported::Never),
            Self::Damaged(it) => ("unknown", it.fields(), &[][..], Exported::Never),
            Self::Gap(it) => ("gap", it.fields(), &[][..], Exported::Never),
        };
        Described { what, fields, damaged: damaged.to_vec(), exported }
    }

    /// True if it says that records are lost or cannot be read.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Gap(_))
    }
}

fn fields_of_step(step: &RecordedStep) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("index", Value::Int(step.index)), ("kind", Value::from(step.kind.name()))];
    fields.extend(step.time.map(|time| ("time_us", Value::Int(time))));
    fields.extend(step.fields().map(|(field, value)| (field.name, value)));
    fields
}

impl Discarded {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![("index", Value::Int(self.index))];
        fields.extend(self.time.map(|time| ("time_us", Value::Int(time))));
        fields.extend(self.reason.as_deref().map(|reason| ("reason", Value::from(reason))));
        let action = self.step.as_ref().and_then(|step| step.action.clone());
        fields.extend(action.map(|action| ("action", action)));
        fields
    }

    fn damaged(&self) -> &[&'static str] {
        self.step.as_ref().map_or(&[], |step| &step.damaged)
    }
}

impl DamagedRecord {
    fn is_known(&self) -> bool {
        Kind::from_u8(self.kind).is_some()
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let place = format!("segment {}, byte {}", self.place.segment, self.place.offset);
        let mut fields = vec![("sequence", Value::Int(self.seq.into())), ("place", Value::from(place))];
        fields.extend((!self.is_known()).then(|| ("kind", Value::Int(self.kind.into()))));
        fields
    }
}

impl Gap {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let records = i64::from(self.to) - i64::from(self.from);
        vec![("records", Value::Int(records)), ("sequence", Value::Int(self.from.into()))]
    }
}

/// All of an attempt.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// How it began.
    pub begin: Option<Begin>,
    /// Its steps.
    pub steps: Vec<RecordedStep>,
    /// A turn that has an intent and no result.
    pub pending: Option<RecordedStep>,
    /// Turns that were discarded.
    pub discarded: Vec<Discarded>,
    /// Calls that were recorded.
    pub calls: Vec<Call>,
    /// Notes that were added.
    pub notes: Vec<Note>,
    /// How it ended.
    pub end: Option<End>,
    /// Records that cannot be read and belong to no step.
    pub damaged: Vec<DamagedRecord>,
    /// Records that are missing.
    pub gaps: Vec<Gap>,
}

impl Attempt {
    pub(super) fn add(&mut self, event: EpisodeEvent) {
        match event {
            // In an attempt that resumed another one, the last beginning and the last end are its own.
            EpisodeEvent::Begin(begin) => self.begin = Some(*begin),
            EpisodeEvent::Step(step) => self.steps.push(*step),
            EpisodeEvent::Discarded(discarded) => self.discarded.push(*discarded),
            EpisodeEvent::Call(call) => self.calls.push(*call),
            EpisodeEvent::Note(note) => self.notes.push(*note),
            EpisodeEvent::End(end) => self.end = Some(*end),
            EpisodeEvent::Damaged(damaged) => self.damaged.push(damaged),
            EpisodeEvent::Gap(gap) => self.gaps.push(gap),
        }
    }

    /// True if nothing of it is lost or damaged.
    pub fn is_whole(&self) -> bool {
        // Every field is named, so that a new one cannot be forgotten.
        let Self { begin, steps, pending, discarded, calls, notes, end, damaged, gaps } = self;
        let steps = steps.iter().chain(pending).all(|step| step.damaged.is_empty());
        let discarded = discarded.iter().all(|turn| turn.damaged().is_empty());
        let calls = calls.iter().all(|call| call.damaged.is_empty());
        let notes = notes.iter().all(|note| note.damaged.is_empty());
        let begin = begin.iter().all(|begin| begin.damaged.is_empty());
        let end = end.iter().all(|end| end.damaged.is_empty());
        steps && discarded && calls && notes && begin && end && damaged.is_empty() && gaps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use keepstep_format::kind::Effect;

    use super::*;
    use crate::read::RecordPlace;

    fn record(kind: Kind) -> Record {
        let place = RecordPlace { segment: 0, offset: 128 };
        let fields = vec![(fields::TIME, Value::Int(7)), (fields::NAME, Value::from("judge"))];
        Record { seq: 3, kind: kind as u8, place, bytes: 0, fields, lost: vec![fields::VALUE] }
    }

    /// No kind of record is left out in silence: it changes the steps, or is an event, or is not of an attempt.
    #[test]
    fn each_kind_changes_the_steps_or_is_an_event() {
        for &kind in Kind::ALL {
            let is_of_an_attempt = kind as u8 >= Kind::FIRST_RECORD && kind != Kind::Put;
            let is_event = EpisodeEvent::beside(kind, &record(kind)).is_some();
            assert_eq!(is_event, is_of_an_attempt && kind.effect() == Effect::None, "{}", kind.name());
        }
    }

    #[test]
    fn an_event_is_shown_with_its_fields_and_what_is_lost_of_them() {
        let shown = EpisodeEvent::beside(Kind::Note, &record(Kind::Note)).expect("an event").describe();
        assert_eq!(shown.fields, [("time_us", Value::Int(7)), ("name", Value::from("judge"))]);
        assert_eq!((shown.what, &*shown.damaged, shown.exported), ("note", &["value"][..], Exported::Never));
    }

    /// Was a bug: what was lost of a turn that was discarded did not count.
    #[test]
    fn an_attempt_is_not_whole_if_a_part_of_a_discarded_turn_is_lost() {
        let mut attempt = Attempt::default();
        let mut discard = |damaged: Vec<&'static str>| {
            let step = Some(Box::new(RecordedStep { damaged, ..RecordedStep::default() }));
            attempt.add(EpisodeEvent::Discarded(Box::new(Discarded {
                index: 0,
                reason: None,
                time: None,
                step,
            })));
            attempt.is_whole()
        };
        assert!(discard(Vec::new()));
        assert!(!discard(vec!["action"]));
    }
}
