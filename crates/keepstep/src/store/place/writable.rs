//! Checks, before an episode is claimed, that it can be taken over at all.
//!
//! A claim is never taken back. If a needed folder belongs to another user, every try would use up an attempt number
//! and then fail half-way.

use std::io;

use keepstep_format::Id;

use crate::error::{Doing, Error, Result};
use crate::own::NewClaim;
use crate::segment::chain::Chain;
use crate::store::Store;

impl Store {
    /// Claims an attempt, if all folders that it needs can be written. False if another process has claimed it.
    pub(in crate::store) fn claim(&self, new: &NewClaim<'_>) -> Result<bool> {
        self.check_writable(new.episode, new.attempt)?;
        self.claim_batcher().claim(new)
    }

    /// An error if a folder that a takeover of this attempt has to write to is not writable for us.
    fn check_writable(&self, episode: &Id, attempt: u32) -> Result<()> {
        let id = episode.to_string();
        let shard = &id[..2];
        let mut folders = vec!["claims".to_owned(), "ends".to_owned(), "mail".to_owned()];
        folders.extend([format!("claims/{shard}"), format!("ends/{shard}")]);
        let before = Chain::read_newest_before(self.cards(), episode, attempt)?;
        folders.extend(before.writers().iter().map(|owner| format!("mail/{owner}")));
        for dir in &folders {
            if !self.disk().can_write(dir).doing("look at", dir)? {
                let why =
                    "it belongs to another user: change its owner (`chown -R`), then open the episode again";
                let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
                return Err(Error::io("write to", dir, source));
            }
        }
        Ok(())
    }
}
