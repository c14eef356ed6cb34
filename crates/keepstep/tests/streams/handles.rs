//! What a process put is known to its store, not to a handle that can be dropped.

use keepstep::disk::sim::SimDisk;
use keepstep::{Error, Level, Run, Store, Value};

use crate::{options, put, seed, value};

fn run_on(sim: &SimDisk) -> Run {
    let store = Store::on_files(sim.process(), options(None).segment_bytes_max(4000)).expect("opens");
    store.run("run", Value::Null).expect("opens")
}

/// Makes so many streams that the store has forgotten all that had no handle.
fn use_many_others(run: &Run) {
    for n in 0..300 {
        put(&run.stream(&format!("other {n}")), "x").expect("puts");
    }
}

/// An entry was known to the handle that put it. When that handle was dropped, another value under its id was
/// acknowledged, and nobody could read the stream from then on.
#[test]
fn what_a_dropped_handle_put_cannot_be_put_otherwise() {
    for are_many in [false, true] {
        let sim = SimDisk::new(seed() + 20);
        let run = run_on(&sim);
        for n in 0..40 {
            put(&run.stream("tokens"), &format!("entry {n}")).expect("puts");
        }
        if are_many {
            use_many_others(&run);
        }
        for n in 0..40 {
            let id = format!("entry {n}");
            let refused = run.stream("tokens").put(&id, Value::Int(7)).map(|_| ());
            assert!(matches!(refused, Err(Error::BadInput { .. })), "{are_many} {id}: {refused:?}");
            let again = run.stream("tokens").put(&id, value(&id)).expect("the same is fine");
            again.wait().expect("is durable");
            assert_eq!(again.level(), Some(Level::Power), "{are_many} {id}");
        }
        let view = run.stream("tokens").freeze().expect("freezes");
        assert_eq!((view.entries.len(), view.conflicts.len()), (40, 0), "{are_many}");
    }
}

/// The same for entries that are not durable yet when their handle is dropped.
#[test]
fn what_is_in_flight_is_known_to_the_next_handle() {
    let sim = SimDisk::new(seed() + 21);
    let run = run_on(&sim);
    let receipts: Vec<_> = (0..40)
        .map(|n| run.stream("tokens").put(&format!("entry {n}"), Value::Int(n)).expect("puts"))
        .collect();
    for n in 0..40 {
        let refused = run.stream("tokens").put(&format!("entry {n}"), Value::Int(-1)).map(|_| ());
        assert!(matches!(refused, Err(Error::BadInput { .. })), "entry {n}: {refused:?}");
    }
    receipts.iter().for_each(|receipt| receipt.wait().expect("is durable"));
}

/// A handle for each entry costs nothing: it writes and syncs what one handle for all does. It claimed the stream again.
#[test]
fn a_handle_for_each_entry_costs_nothing() {
    let calls = |makes_handles: bool| {
        let sim = SimDisk::new(seed() + 22);
        let run = run_on(&sim);
        let kept = run.stream("tokens");
        put(&kept, "first").expect("puts");
        let kept = (!makes_handles).then_some(kept);
        let before = sim.operations();
        for n in 0..20 {
            let id = format!("entry {n}");
            match &kept {
                Some(stream) => put(stream, &id),
                None => put(&run.stream("tokens"), &id),
            }
            .expect("puts");
        }
        sim.operations() - before
    };
    assert_eq!(calls(true), calls(false));
}
