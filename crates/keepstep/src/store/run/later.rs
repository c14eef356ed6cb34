//! A run that was opened before anybody said its config takes the first one that is given, as long as it has no episode.
//!
//! Its card stays as it is. A second one beside it, create-only, says the config and the links: of several processes
//! that bring one, the first decides. The generation id stays the same, so whoever has the run open keeps the right one.

use keepstep_format::card::kind;

use super::{RunInfo, RunOptions, config, run_fields, run_info};
use crate::error::{Doing, Error, Result};
use crate::segment::cards::{CardFound, Published, publish_card, read_card};
use crate::segment::names::{run_config_path, run_path};
use crate::store::Store;

impl RunInfo {
    /// True if neither a config nor links were given so far.
    fn is_bare(&self) -> bool {
        config::says_nothing(&self.config) && self.links.is_empty()
    }
}

impl Store {
    /// What is known of a generation of a run, whenever it was said.
    pub(super) fn read_run(&self, folder: &str, generation: u64) -> Result<RunInfo> {
        let path = run_path(folder, generation);
        let made = self.read_run_card(&path)?.ok_or(Error::NotFound { what: path })?;
        if !made.is_bare() {
            return Ok(made);
        }
        let path = run_config_path(folder, generation);
        let Some(later) = self.read_run_card(&path)? else { return Ok(made) };
        if later.generation_id != made.generation_id {
            let found = "it is of another generation of the run".to_owned();
            return Err(Error::Damaged { path, offset: 0, found });
        }
        Ok(RunInfo { config: later.config, links: later.links, ..made })
    }

    fn read_run_card(&self, path: &str) -> Result<Option<RunInfo>> {
        let damaged =
            |found: &str| Error::Damaged { path: path.to_owned(), offset: 0, found: found.to_owned() };
        match read_card(self.cards(), path, kind::RUN)? {
            CardFound::Nothing => Ok(None),
            CardFound::Damaged => Err(damaged("it does not validate")),
            CardFound::Card(card) => run_info(&card)
                .map(Some)
                .ok_or_else(|| damaged("it lacks a name, a generation id or a generation")),
        }
    }

    /// The run with the config and links that are given, if it took them; otherwise as it is, and the caller compares.
    pub(super) fn offer_config(&self, folder: &str, run: RunInfo, given: &RunOptions) -> Result<RunInfo> {
        let brings_nothing = config::says_nothing(&given.config) && given.links.is_empty();
        if brings_nothing || !run.is_bare() || self.has_episodes(&run)? {
            return Ok(run);
        }
        self.check_open()?;
        let taken = RunInfo { config: given.config.clone(), links: given.links.clone(), ..run.clone() };
        let said = RunInfo { time: self.disk().now_us(), ..taken.clone() };
        let path = run_config_path(folder, run.generation);
        match publish_card(self.cards(), &path, kind::RUN, &run_fields(&said))? {
            Published::Done => Ok(taken),
            Published::Taken => {
                let decided = self.read_run(folder, run.generation)?;
                self.disk().settle(folder).doing("sync", folder)?;
                Ok(RunInfo { is_newest: run.is_newest, ..decided })
            }
            Published::Unfit => Err(config::unfit()),
        }
    }

    /// True if an episode of it began. What is recorded at this very moment by a process that gave no config may be
    /// missed: that process accepts whatever config the run has.
    fn has_episodes(&self, run: &RunInfo) -> Result<bool> {
        let listed = self.list(&mut self.catalog()?)?;
        Ok(listed.iter().any(|it| it.summary.generation_id == Some(run.generation_id)))
    }
}
