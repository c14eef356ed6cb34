//! Looks before it claims whether an episode could be taken over at all.
//!
//! A claim is never taken back. Where its folders belong to somebody else, each try would cost an attempt and fail all the
//! same, half-way.

use std::io;

use keepstep_format::Id;

use super::Store;
use crate::error::{Doing, Error, Result};

impl Store {
    /// An error if a folder that whoever opens this episode has to write to does not let us.
    pub(super) fn check_writable(&self, episode: &Id) -> Result<()> {
        let id = episode.to_string();
        let shard = &id[..2];
        for dir in ["claims", "ends", "mail", &format!("claims/{shard}"), &format!("ends/{shard}")] {
            if !self.disk().can_write(dir).doing("look at", dir)? {
                let why = "it belongs to another user, who made it in this store: have it given to you (`chown -R`), then open the episode again";
                let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
                return Err(Error::io("write to", dir, source));
            }
        }
        Ok(())
    }
}
