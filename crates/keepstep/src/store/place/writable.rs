//! Looks before it claims whether an episode could be taken over at all.
//!
//! A claim is never taken back. Where its folders belong to somebody else, each try would cost an attempt and fail all the
//! same, half-way.

use std::io;

use keepstep_format::Id;

use crate::error::{Doing, Error, Result};
use crate::segment::chain::Chain;
use crate::store::Store;

impl Store {
    /// Claims an attempt, where nothing keeps us from making it real. False if somebody else has it.
    pub(in crate::store) fn claim(
        &self,
        episode: &Id,
        attempt: u32,
        writer: &Id,
        generation_id: &Id,
    ) -> Result<bool> {
        self.check_writable(episode, attempt)?;
        self.claim_batcher().claim(episode, attempt, writer, generation_id)
    }

    /// An error if a folder that whoever makes this attempt real has to write to does not let us.
    fn check_writable(&self, episode: &Id, attempt: u32) -> Result<()> {
        let id = episode.to_string();
        let shard = &id[..2];
        let mut folders = vec!["claims".to_owned(), "ends".to_owned(), "mail".to_owned()];
        folders.extend([format!("claims/{shard}"), format!("ends/{shard}")]);
        let before = Chain::read_newest_before(self.cards(), episode, attempt)?;
        folders.extend(before.writers().iter().map(|owner| format!("mail/{owner}")));
        for dir in &folders {
            if !self.disk().can_write(dir).doing("look at", dir)? {
                let why = "it belongs to another user, who made it in this store: have it given to you (`chown -R`), then open the episode again";
                let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
                return Err(Error::io("write to", dir, source));
            }
        }
        Ok(())
    }
}
