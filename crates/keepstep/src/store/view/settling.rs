//! What followers do before they report: find out whether a record counts, and settle what a writer left that is gone.
//!
//! Evidence that a process is gone may be wrong, so nothing is reported because of it. It is a reason to decide by a
//! create-only name: a void base for a taker, an answer for a log. Whoever was alive after all then knows.
//!
//! A process that may not write here can decide nothing, and others may record all the same. It waits until somebody
//! else decides, or until the other process has been gone for long.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::read::Follow;
use crate::segment::chain::Chain;
use crate::store::Store;
use crate::tend::{CloseLogs, NotClosed};

/// For how long a writer that seems gone may settle what it wrote: one that lives does so in a moment.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A writer that was asked is left alone for this long: it may have turned out to be alive.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Closes logs for a follower.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// When writers were asked, on the clock of this boot.
    asked_us: BTreeMap<Id, i64>,
    /// What could not be read to close a log, since it was last asked for.
    troubles: Vec<Error>,
}

impl Closing {
    /// Closes the logs of those writers that seem gone and do not settle what they left. True if one was closed.
    pub(super) fn close(&mut self, store: &Store, mut left: Vec<Id>, follow: &mut Follow) -> Result<bool> {
        let now_us = store.disk().uptime_us();
        self.asked_us.retain(|_, asked_us| now_us - *asked_us < ASK_AGAIN.as_micros() as i64);
        left.sort_unstable();
        left.dedup();
        left.retain(|writer| !self.asked_us.contains_key(writer) && store.is_gone(writer));
        if left.is_empty() {
            return Ok(false);
        }
        let before = follow.left_by_the_gone()?;
        while Duration::from_micros((store.disk().uptime_us() - now_us).max(0) as u64) < PATIENCE {
            if follow.stopper().is_stopped() {
                return Ok(false);
            }
            store.disk().sleep(LOOK_EVERY);
        }
        follow.look_again()?;
        let still = follow.left_by_the_gone()?;
        let has_settled = |writer: &Id| before.contains(writer) && !still.contains(writer);
        let settled = left.iter().any(has_settled);
        left.retain(|writer| !has_settled(writer) && store.is_gone(writer));
        let closed = self.close_now(store, &left, follow)?;
        Ok(settled || closed)
    }

    /// What could not be read to close a log, since the last call.
    pub(super) fn take_troubles(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.troubles)
    }

    fn close_now(&mut self, store: &Store, left: &[Id], follow: &mut Follow) -> Result<bool> {
        let mut is_closed = false;
        for &writer in left {
            self.asked_us.insert(writer, store.disk().uptime_us());
            match store.closer().close(&[writer]) {
                Ok(not_closed) => {
                    is_closed |= not_closed.is_empty();
                    self.troubles.extend(not_closed.into_values().filter_map(|why| match why {
                        NotClosed::Trouble(error) => Some(error),
                        NotClosed::For(_) => None,
                    }));
                }
                Err(error) if may_not_write(&error) => {
                    // Perhaps nobody may, as in an archive, and then nobody ever settles it.
                    if store.is_gone_for_long(&writer) {
                        follow.trust(writer);
                        is_closed = true;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if is_closed {
            follow.look_again()?;
        }
        Ok(is_closed)
    }
}

impl Store {
    /// Whether a record that is in its owner's log counts; `None` if this is open. It counts once no other process can
    /// publish what it read before the record was written.
    pub(super) fn own_record_counts(
        &self,
        episode: &Id,
        chain: &Chain,
        attempt: u32,
        seq: u32,
    ) -> Result<Option<bool>> {
        if let Some(counted) = chain.link(attempt).and_then(|link| link.records) {
            return Ok(Some(seq < counted));
        }
        let later = chain.behind(attempt);
        if later.iter().any(|link| link.base.is_some()) {
            return Ok(Some(true));
        }
        for taker in later.iter().filter(|link| !link.is_void).map(|link| &link.claim) {
            if !self.is_gone(&taker.writer) {
                return Ok(None);
            }
            match self.pass_over(episode, taker.attempt) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if may_not_write(&error) => {
                    if !self.is_gone_for_long(&taker.writer) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(true))
    }
}

/// True if this process may not write: the store is another user's, or is mounted read-only here.
fn may_not_write(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}
