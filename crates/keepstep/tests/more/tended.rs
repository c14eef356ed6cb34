//! Going on with what was truncated, in a store that others tend.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keepstep::disk::sim::SimDisk;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, Episode, Error, Run, Step};

use super::{each_point, inside_at, name, retry, run_on, seen, truncated};

/// `compact`, `reap` and `prune` at each point of going on, and going on at each point of theirs: nothing of it is lost, or it
/// is deleted as a whole.
#[test]
fn others_tend_the_store_meanwhile() {
    type Act = fn(&Run);
    fn at_once() -> CompactOptions {
        CompactOptions::default().grace(Duration::ZERO)
    }
    let acts: [(&str, Act); 3] = [
        ("compact", |run| {
            run.store().compact(at_once(), &mut |_| {}).expect("compacts");
            run.store().compact(at_once(), &mut |_| {}).expect("compacts");
        }),
        ("reap", |run| drop(run.store().reap().expect("reaps"))),
        ("prune", |run| {
            let episodes = vec![run.episode_id(&name())];
            let filter = PruneFilter::default().episodes(episodes).reason("old");
            run.store().prune_with(&filter, at_once(), false, &mut |_| {}).expect("prunes");
        }),
    ];
    fn go_on(run: &Run) -> keepstep::Result<Episode> {
        let episode = run.open(name(), retry())?;
        assert_eq!(episode.steps(), 2);
        episode.step(Step::new().action(2))?;
        Ok(episode)
    }
    let begin = || {
        let sim = SimDisk::new(6);
        let owner = run_on(sim.process());
        truncated(&owner);
        owner.store().close();
        sim
    };
    let check = |sim: &SimDisk, what: &str, came: keepstep::Result<Episode>| {
        let reader = run_on(sim.process());
        // What was pruned while it is recorded would be gone although it is promised.
        match came.and_then(|episode| episode.end("finished", Ending::default())?.wait()) {
            Ok(()) => assert_eq!(seen(&reader), (1, 3, Some("finished".to_owned())), "{what}"),
            Err(Error::Pruned { .. }) => {
                assert!(what.starts_with("prune"), "{what}");
                assert!(reader.view(&name()).is_err(), "{what}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
        assert!(reader.store().verify(&mut |_| {}).expect("verifies").is_whole(), "{what}");
    };
    for (act, does) in acts {
        each_point(|at| {
            let sim = begin();
            let other = run_on(sim.process());
            let (call, came) = inside_at(&sim, at, move || does(&other), go_on)?;
            check(&sim, &format!("{act} before {call}"), came);
            Some(())
        });
        each_point(|at| {
            let sim = begin();
            let other = run_on(sim.process());
            let kept: Arc<Mutex<Option<keepstep::Result<Episode>>>> = Arc::default();
            let slot = Arc::clone(&kept);
            let goes_on = move || *slot.lock().expect("no panic") = Some(go_on(&other));
            let (call, ()) = inside_at(&sim, at, goes_on, does)?;
            let came = kept.lock().expect("no panic").take().expect("ran");
            check(&sim, &format!("{act}, gone on before {call}"), came);
            Some(())
        });
    }
}
