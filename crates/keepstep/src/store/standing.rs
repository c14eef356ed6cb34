//! How an episode stands, for those who build on it: has it ended for good, in which attempt, and if not, why.
//!
//! An END that stands in a log may not count: a taker that read before it was written may still publish a base without
//! it. So the claims are read after the END, and an end that somebody may still overrule is no end yet.

use keepstep_format::Id;

use super::run::Run;
use crate::error::{Doing, Error, Result};
use crate::own;
use crate::read::is_final;
use crate::segment::Liveness;
use crate::segment::chain::Chain;
use crate::segment::names::{list_segments, segment_path};

/// How an episode stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is over, and nobody can change that; this attempt counts.
    Final { attempt: u32 },
    /// It is not, and this is why.
    NotYet(String),
}

/// How often an episode may change hands while it is looked at.
const LOOKS_MAX: usize = 4;

/// How an episode of a run stands now.
pub(super) fn standing_of(run: &Run, episode: &Id) -> Result<Standing> {
    let store = run.store();
    for _ in 0..LOOKS_MAX {
        let view = match store.view(episode) {
            Ok(view) => view,
            Err(Error::NotFound { .. }) => return Ok(Standing::NotYet("not begun".to_owned())),
            Err(error) => return Err(error),
        };
        let why = view.ending()?.map(|end| end.why.unwrap_or_else(|| "damaged".to_owned()));
        let chain = Chain::read(store.cards(), episode)?;
        let attempt = view.number();
        let Some(owner) = chain.link(attempt).map(|link| link.claim.writer) else {
            return Ok(Standing::NotYet("not claimed".to_owned()));
        };
        if chain.in_force().is_none_or(|link| link.claim.attempt != attempt) {
            continue;
        }
        return match why.as_deref() {
            Some(why) if is_final(why) => {
                let mut takers = chain.links[attempt as usize + 1..].iter().map(|link| &link.claim.writer);
                if !takers.all(|taker| store.is_gone(taker)) {
                    return Ok(Standing::NotYet("being taken over".to_owned()));
                }
                make_durable(run, &owner)?;
                Ok(Standing::Final { attempt })
            }
            Some(why) => Ok(Standing::NotYet(why.to_owned())),
            None => Ok(Standing::NotYet(without_an_end(run, &owner).to_owned())),
        };
    }
    Ok(Standing::NotYet("being taken over".to_owned()))
}

fn without_an_end(run: &Run, owner: &Id) -> &'static str {
    match run.store().leases().standing(owner) {
        own::Standing::Live => "running",
        own::Standing::Silent { .. } => "silent",
        own::Standing::Dead(_) => "crashed",
    }
}

/// Of a writer that lives only what is synced is read. What another left may be in memory only: what is built on it must
/// not be taken back by a power cut.
fn make_durable(run: &Run, owner: &Id) -> Result<()> {
    let store = run.store();
    if store.liveness(owner) == Liveness::Live {
        return Ok(());
    }
    // Segments before the newest were sealed, or given up behind what was synced.
    let Some(&newest) = list_segments(&**store.disk(), owner)?.last() else { return Ok(()) };
    store.cards().file(owner, newest)?.sync().doing("sync", &segment_path(owner, newest))
}
