//! Checks the small files: cards, `keepstep.json`, locks; and finds leftovers.

use std::io;

use keepstep_format::Id;
use keepstep_format::card::{Card, CardError, parse_store_json};
use keepstep_format::decode::{Body, NoBodies, read_fields};

use super::report::Wrong;
use super::verify::Verifier;
use crate::disk::{self, join};
use crate::error::{Doing, Result, or_told};
use crate::segment::Log;
use crate::segment::names::{
    TEMPORARY, WRITERS, is_catalog, is_name_of_a_file, list_temporary, parse_segment_path, writer_dir,
};

/// Folders that contain cards, or folders with cards.
const FOLDERS: [&str; 9] =
    ["runs", "mail", "claims", "scans", "heals", "ends", "groups", "streams", "grouped"];
/// How deep folders are nested at most.
const DEPTH_MAX: usize = 3;

impl Verifier<'_> {
    pub(super) fn check_cards(&mut self, logs: &[Log]) -> Result<()> {
        self.check_store_json()?;
        self.report.leftovers.extend(list_temporary(self.storage.disk(), "")?);
        self.report.leftovers.extend(list_temporary(self.storage.disk(), WRITERS)?);
        for folder in FOLDERS {
            self.check_folder(folder, 0)?;
        }
        for log in logs.iter().filter(|log| *log.writer() != Id::NONE) {
            let dir = writer_dir(log.writer());
            self.report.leftovers.extend(list_temporary(self.storage.disk(), &dir)?);
            self.check_lock(log, &join(&dir, "lock"))?;
        }
        self.report.leftovers.sort();
        Ok(())
    }

    fn check_store_json(&mut self) -> Result<()> {
        const PATH: &str = disk::STORE_FILE;
        // An incomplete store is verified too: then its id is unknown.
        if !self.storage.disk().exists(PATH).doing("look for", PATH)? {
            return Ok(());
        }
        let data = match self.storage.disk().get(PATH) {
            // No regular file, or one of absurd length.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Vec::new(),
            other => other.doing("read", PATH)?,
        };
        let id = parse_store_json(&String::from_utf8_lossy(&data)).map(|(id, _)| id);
        if id.as_ref().ok() != Some(self.storage.store()) {
            let detail = "it does not validate, or is that of another store".to_owned();
            self.damage(PATH.to_owned(), None, (0, data.len() as u64), Wrong::Card, detail);
        }
        Ok(())
    }

    fn check_folder(&mut self, dir: &str, depth: usize) -> Result<()> {
        for entry in self.storage.disk().list(dir).doing("list", dir)? {
            let path = join(dir, &entry.name);
            if entry.is_dir && !is_name_of_a_file(&path) {
                if depth < DEPTH_MAX {
                    self.check_folder(&path, depth + 1)?;
                }
            } else if entry.name.starts_with(TEMPORARY) {
                self.report.leftovers.push(path);
            } else if parse_segment_path(&path).is_none() && !is_catalog(&path) {
                self.check_card(&path)?;
            }
        }
        Ok(())
    }

    fn check_card(&mut self, path: &str) -> Result<()> {
        let data = match self.storage.disk().get(path) {
            // Deleted since it was listed: `compact` does that to cards about logs that it has replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.damage(path.to_owned(), None, (0, 0), Wrong::Card, error.to_string());
                return Ok(());
            }
            other => other.doing("read", path),
        };
        self.report.counts.cards += 1;
        let data = match or_told(data)? {
            (Some(data), _) => data,
            // If the system cannot read one card, the rest must still be verified.
            (None, error) => {
                let detail = error.map_or_else(String::new, |error| format!("it cannot be read: {error}"));
                self.damage(path.to_owned(), None, (0, 0), Wrong::Card, detail);
                return Ok(());
            }
        };
        let is_valid = match Card::decode(&data, self.storage.store(), path) {
            Ok(card) => read_fields(&Body { raw: card.body, references: Vec::new() }, &mut NoBodies).is_ok(),
            // Cards of a later version cannot be judged here.
            Err(CardError::Newer { .. }) => true,
            Err(_) => false,
        };
        if !is_valid {
            let bytes = data.len() as u64;
            self.damage(path.to_owned(), None, (0, bytes), Wrong::Card, "it does not validate".to_owned());
        }
        Ok(())
    }

    /// A lock file is written before the first segment gets its name; without segments it may be incomplete.
    fn check_lock(&mut self, log: &Log, path: &str) -> Result<()> {
        let is_needed = log.segments().next().is_some();
        if !self.storage.disk().exists(path).doing("look for", path)? {
            return Ok(());
        }
        let damage_before = self.report.damage.len();
        // A process must not open a lock that it holds: closing it would free the lock.
        if log.liveness() == crate::segment::Liveness::Live {
            return Ok(());
        }
        self.check_card(path)?;
        if !is_needed && self.report.damage.len() > damage_before {
            self.report.damage.truncate(damage_before);
            self.report.leftovers.push(path.to_owned());
        }
        Ok(())
    }
}
