//! The notes of a run as rows: gathered when the reading of the table begins.

use std::collections::{HashMap, VecDeque};

use keepstep::read::{NoteKey, NoteSaid};
use keepstep::{Id, Listed, Result, Run};

use super::batch::Batch;
use super::cells::Cell;
use super::columns::Column;
use super::says::name_cell;

/// Notes that are not rows yet.
pub(super) struct NoteRows {
    notes: VecDeque<(NoteKey, NoteSaid, bool)>,
    /// What the episodes that have notes are called.
    named: HashMap<(Id, Option<u32>), Listed>,
}

impl NoteRows {
    /// Gathers all notes: those of the run, and those that attempts recorded themselves.
    pub(super) fn of(run: &Run, listed: &[Listed], unread: &mut Vec<String>) -> Result<Self> {
        let mut rows = Self { notes: VecDeque::new(), named: HashMap::new() };
        let index = run.notes()?;
        unread.extend(index.lost().iter().map(ToString::to_string));
        let mut episodes: Vec<Id> = Vec::new();
        for it in listed {
            let id = it.key.episode;
            if episodes.last() != Some(&id) {
                episodes.push(id);
            }
            if it.is_in_force {
                rows.named.insert((id, None), it.clone());
            }
            rows.named.insert((id, Some(it.key.attempt)), it.clone());
        }
        for id in episodes {
            let (notes, lost) = match index.episode(&id) {
                // Its cards say which of its notes count.
                Err(error) if error.is_of_one_file() => {
                    unread.push(format!("the notes on episode {id}: {error}"));
                    continue;
                }
                found => found?,
            };
            unread.extend(lost.iter().map(ToString::to_string));
            for (key, said) in notes.iter() {
                let newest = notes.newest(key);
                rows.notes.extend(said.iter().map(|it| (key.clone(), it.clone(), newest == Some(it))));
            }
        }
        Ok(rows)
    }

    /// Adds the next notes, up to the end of the batch.
    pub(super) fn fill(&mut self, columns: &[Column], batch: &mut Batch) {
        while !batch.is_full() {
            let Some((key, said, counts)) = self.notes.pop_front() else { break };
            let cells = columns.iter().map(|column| self.cell(column.name, &key, &said, counts));
            batch.cells(cells.collect());
        }
    }

    fn cell(&self, name: &str, key: &NoteKey, said: &NoteSaid, counts: bool) -> Cell {
        let of = self.named.get(&(key.target.episode, key.target.attempt));
        match name {
            "attempt" => Cell::int(key.target.attempt.map(i64::from)),
            "step" => Cell::int(key.target.step.map(|step| step as i64)),
            "name" => Cell::Text(key.name.clone()),
            "source" => Cell::Text(key.source.clone()),
            "time" => Cell::Int(said.time),
            "counts" => Cell::Truth(counts),
            "value" => Cell::json(Some(&said.value)),
            // A note on something that is not there any more.
            "ref" if of.is_none() => Cell::Text(key.target.episode.to_string()),
            name => of.map_or(Cell::Null, |listed| name_cell(name, listed)),
        }
    }
}
