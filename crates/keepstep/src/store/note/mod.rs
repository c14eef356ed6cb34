//! Notes on any episode of a run: it may have ended, or belong to another process, live or dead.

pub(in crate::store) mod addressee;
pub(in crate::store) mod orphans;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use keepstep_format::commit::What;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use crate::error::Result;
use crate::read::{NoteIndex, NoteTarget};
use crate::store::note::addressee::Seen;
use crate::store::{Run, Store};
use crate::write::{Putter, Receipt, SubjectKey, SubjectName, note_fields};

/// The putters of notes, which append to this process's log, by the generation id of their run.
#[derive(Default)]
pub(in crate::store) struct NotePutters {
    by_generation: Mutex<HashMap<Id, Arc<Putter>>>,
    /// The target of the last note.
    pub(in crate::store) seen: Seen,
}

/// How many unused putters are kept. A new one is cheap.
const PUTTERS_MAX: usize = 64;

impl Run {
    /// Adds a note on an episode of this run, on an attempt at it, or on a step. Returns at once.
    ///
    /// If one source gives several notes with the same name and target, the newest counts; the older ones stay
    /// readable. The target must exist.
    pub fn annotate(&self, target: NoteTarget, name: &str, value: Value, source: &str) -> Result<Receipt> {
        self.annotate_called(target, &format!("episode {}", target.episode), name, value, source)
    }

    /// As [`Run::annotate`], with the caller's name for the episode, for messages.
    pub fn annotate_called(
        &self,
        target: NoteTarget,
        called: &str,
        name: &str,
        value: Value,
        source: &str,
    ) -> Result<Receipt> {
        let said = note_fields(name, value, source)?;
        self.store().check_open()?;
        self.check_note_target(&target, called)?;
        let time = self.store().disk().now_us();
        let mut note = vec![(fields::TIME, Value::Int(time))];
        note.extend(target.step.map(|step| (fields::INDEX, Value::Int(step as i64))));
        note.extend(said);
        note.push((fields::TARGET, Value::bytes(target.episode.0)));
        note.extend(target.attempt.map(|it| (fields::TARGET_ATTEMPT, Value::Int(i64::from(it)))));
        let receipt = self.note_putter()?.append(Kind::Note, &note)?;
        self.plan_cache().scorings.annotated(&target.episode);
        Ok(receipt)
    }

    /// The notes of this run.
    pub fn notes(&self) -> Result<NoteIndex> {
        self.store().notes(self.generation_id())
    }

    pub(in crate::store) fn note_putter(&self) -> Result<Arc<Putter>> {
        // The process is checked first: in a forked child, a thread of the parent may hold the lock for ever.
        let writer = self.store().writer()?;
        let mut putters =
            self.store().inner.notes.by_generation.lock().unwrap_or_else(PoisonError::into_inner);
        // Putters of a log that was closed by another process are useless.
        putters.retain(|_, putter| putter.is_of(&writer));
        if putters.len() >= PUTTERS_MAX && !putters.contains_key(&self.generation_id()) {
            putters.retain(|_, putter| Arc::strong_count(putter) > 1);
        }
        let putter = putters.entry(self.generation_id()).or_insert_with(|| {
            let key = SubjectKey { what: What::Run, id: self.generation_id(), attempt: 0 };
            let (run, generation_id) = (self.name().to_owned(), self.generation_id());
            let name = SubjectName { run, generation_id, ..SubjectName::default() };
            Arc::new(Putter::new(writer, key, name, self.store().level()))
        });
        Ok(Arc::clone(putter))
    }
}

impl Store {
    /// The notes of a run, by its generation id; [`NoteIndex::refresh`] brings them up to date.
    pub fn notes(&self, generation_id: Id) -> Result<NoteIndex> {
        NoteIndex::new(self.catalog()?, generation_id)
    }
}
