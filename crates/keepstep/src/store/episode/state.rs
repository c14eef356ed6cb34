//! Whether an episode is over, in which attempt, and if not, why: for seals and other records that rest on it.
//!
//! An END in a log may not count: a taker that read before it was written may still publish a base without it. So the
//! claims are read after the END, and the end counts only if no taker can still overrule it. A taker that seems gone
//! is first kept from doing so by a void base.

use keepstep_format::value::Value;
use keepstep_format::{Id, Why};

use crate::error::{Error, Result};
use crate::own;
use crate::read::is_final;
use crate::segment::Liveness;
use crate::segment::chain::Chain;
use crate::store::episode::opening::Opener;
use crate::store::episode::options::Opening;
use crate::store::name::EpisodeName;
use crate::store::run::Run;

/// Whether an episode is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum EpisodeState {
    /// It is over, and that cannot change. This attempt counts.
    Final { attempt: u32 },
    /// It is not over, for this reason.
    NotYet(String),
}

/// How often the owner may change during one look.
const LOOKS_MAX: usize = 4;

/// Whether an episode of a run is over now.
pub(in crate::store) fn episode_state(run: &Run, episode: &Id) -> Result<EpisodeState> {
    let store = run.store();
    for _ in 0..LOOKS_MAX {
        let view = match store.view(episode) {
            Ok(view) => view,
            Err(Error::NotFound { .. }) => return Ok(EpisodeState::NotYet("not begun".to_owned())),
            Err(Error::Pruned { .. }) => return Ok(EpisodeState::NotYet("pruned".to_owned())),
            Err(error) => return Err(error),
        };
        let why = view.ending()?.map(|end| end.why.unwrap_or_else(|| "damaged".to_owned()));
        let chain = Chain::read(store.cards(), episode)?;
        let attempt = view.number();
        let Some(owner) = chain.link(attempt).map(|link| link.claim.writer) else {
            return Ok(EpisodeState::NotYet("not claimed".to_owned()));
        };
        if chain.in_force().is_none_or(|link| link.claim.attempt != attempt) {
            continue;
        }
        return match why.as_deref() {
            Some(why) if is_final(why) => {
                let takers = chain.behind(attempt).iter().filter(|link| !link.is_void);
                for taker in takers.map(|link| &link.claim) {
                    if !store.is_gone(&taker.writer) || !store.pass_over(episode, taker.attempt)? {
                        return Ok(EpisodeState::NotYet("being taken over".to_owned()));
                    }
                }
                if rests_on_a_sync(run, episode, &chain, &owner)? {
                    return Ok(EpisodeState::Final { attempt });
                }
                adopt(run, episode, &chain)?;
                continue;
            }
            Some(why) => Ok(EpisodeState::NotYet(why.to_owned())),
            None => Ok(EpisodeState::NotYet(without_an_end(run, &owner).to_owned())),
        };
    }
    Ok(EpisodeState::NotYet("being taken over".to_owned()))
}

fn without_an_end(run: &Run, owner: &Id) -> &'static str {
    match run.store().leases().state(owner) {
        own::OwnerState::Live => "running",
        own::OwnerState::Silent { .. } => "silent",
        own::OwnerState::Dead(_) => Why::Crashed.name(),
    }
}

/// True if all records of the episode that count are known to be synced. Of a live writer, only such records are
/// read.
fn rests_on_a_sync(run: &Run, episode: &Id, chain: &Chain, owner: &Id) -> Result<bool> {
    let store = run.store();
    let Some(link) = chain.in_force().filter(|_| store.liveness(owner) != Liveness::Live) else {
        return Ok(true);
    };
    let mut catalog = store.looking_at_all();
    catalog.refresh_of(&[link.claim.writer])?;
    // The inherited part was synced by the process that took it over.
    let own = catalog.own_part(episode, chain, link.claim.attempt)?;
    Ok(!(0..own.lines().len()).any(|at| own.is_unsynced(&catalog, at)))
}

/// Takes over an episode that is over, so that its end is synced by this process. What another process left may be in
/// memory only, and a power cut must not remove what other records rest on.
fn adopt(run: &Run, episode: &Id, chain: &Chain) -> Result<()> {
    let Some(newest) = chain.newest() else { return Ok(()) };
    let name = EpisodeName { task: format!("episode {episode}"), iteration: 0, sample: 0 };
    let opener = Opener::new(run, *episode, name, Opening::default())?;
    let reservation = run.store().open_episodes().take(*episode, &opener.what())?;
    let attempt = newest.claim.attempt + 1;
    if !opener.claim(attempt, &opener.writer.id())? {
        return Ok(());
    }
    match opener.take_over(reservation, attempt, false, Value::Null, None) {
        Ok(_) | Err(Error::Ended { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
