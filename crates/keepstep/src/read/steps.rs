//! The steps of a lineage, one by one: only the records that make up a step are read.

use keepstep_format::decode::Wanted;
use keepstep_format::fields;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

use super::item::Item;
use super::lineage::Lineage;
use super::step::RecordedStep;
use crate::error::{Error, Result};
use crate::segment::names::segment_path;

impl Lineage {
    /// A step by its index.
    pub(crate) fn step(&mut self, index: u64) -> Result<RecordedStep> {
        self.wanted_step(index, &Wanted::ALL)
    }

    /// A step by its index, only these fields of it.
    pub(crate) fn wanted_step(&mut self, index: u64, wanted: &Wanted) -> Result<RecordedStep> {
        let lines = self.steps.get(index as usize).copied();
        let lines = lines.ok_or_else(|| Error::NotFound { what: format!("step {index}") })?;
        let mut step = RecordedStep { index: index as i64, ..RecordedStep::default() };
        for at in lines.intent.into_iter().chain([lines.done]) {
            match self.wanted_item(at, wanted)? {
                Item::Record(record) => step.add(&record),
                Item::Damaged(lost) => step.lose(&lost),
                Item::Gap(_) => {}
            }
        }
        let is_first = self.lines[lines.done].kind == Kind::First as u8;
        step.place_in(is_first, self.is_last(index)?);
        Ok(step)
    }

    fn is_last(&mut self, index: u64) -> Result<bool> {
        if index + 1 != self.steps() {
            return Ok(false);
        }
        // An attempt that only adopted an end has its last step there too.
        let Some(at) = self.end_at() else { return Ok(false) };
        Ok(self.end_of(at)?.makes_last())
    }

    /// The newest value of that name in the states of its steps. If damage may have removed a newer one, this is an
    /// error, since an older one would be wrong.
    pub(crate) fn state(&mut self, name: &str) -> Result<Option<Value>> {
        let states = Wanted::of([fields::STATE]);
        for index in (0..self.steps.len()).rev() {
            let Item::Record(record) = self.wanted_item(self.steps[index].done, &states)? else {
                return Err(self.lost_state(index, name));
            };
            let Some(state) = record.get(fields::STATE) else { continue };
            let found = match state.plain() {
                Value::Map(state) => state.iter().find(|(key, _)| key.as_str() == Some(name)),
                _ => None,
            };
            match found {
                Some((_, value)) if !value.has_lost() => return Ok(Some(value.clone())),
                None if !state.has_lost() => {}
                _ => return Err(self.lost_state(index, name)),
            }
        }
        Ok(None)
    }

    fn lost_state(&self, index: usize, name: &str) -> Error {
        let line = self.lines[self.steps[index].done];
        let path = segment_path(&self.parts[line.part].span.writer, line.place.segment);
        let found = format!(
            "the state {name:?} of step {index} is lost; open it with `at` to go on before the damage, or restart it"
        );
        Error::Damaged { path, offset: line.place.offset, found }
    }
}
