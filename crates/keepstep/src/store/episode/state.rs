//! How an episode stands, for those who build on it: has it ended for good, in which attempt, and if not, why.
//!
//! An END that stands in a log may not count: a taker that read before it was written may still publish a base without
//! it. So the claims are read after the END, and an end that somebody may still overrule is no end yet. Whoever seems gone
//! is kept from overruling it first.

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

/// How an episode stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum EpisodeState {
    /// It is over, and nobody can change that; this attempt counts.
    Final { attempt: u32 },
    /// It is not, and this is why.
    NotYet(String),
}

/// How often an episode may change hands while it is looked at.
const LOOKS_MAX: usize = 4;

/// How an episode of a run stands now.
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

/// True if a sync is known to have covered all that counts of an episode. Of a writer that lives only that is read.
fn rests_on_a_sync(run: &Run, episode: &Id, chain: &Chain, owner: &Id) -> Result<bool> {
    let store = run.store();
    let Some(link) = chain.in_force().filter(|_| store.liveness(owner) != Liveness::Live) else {
        return Ok(true);
    };
    let mut catalog = store.looking_at_all();
    catalog.refresh_of(&[link.claim.writer])?;
    // What it inherited was made safe by whoever took it over then.
    let own = catalog.own_part(episode, chain, link.claim.attempt)?;
    Ok(!(0..own.lines().len()).any(|at| own.is_unsynced(&catalog, at)))
}

/// Takes over an episode that is over, so that its end rests on a sync of this process: what another left may be in memory
/// only, and what is built on it must not be taken back by a power cut.
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
