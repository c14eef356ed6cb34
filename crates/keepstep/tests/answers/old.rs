//! Stores of 0.1, which summed up by several rules, are told of as they were recorded.

use std::path::PathBuf;

use keepstep::format::fields;
use keepstep::read::Item;
use keepstep::{Listed, Options, Store, Value};

use crate::paper::shown;
use crate::scratch::{Scratch, copy_all};

/// Steps, return and end of each sample, as `examples/golden.rs` recorded them.
const RECORDED: [(u64, Option<f64>, Option<&str>); 7] = [
    (2, None, Some("finished")),
    (2, Some(0.0), Some("finished")),
    (3, Some(1.5), Some("finished")),
    (1, Some(f64::NAN), Some("finished")),
    (2, Some(0.0), Some("finished")),
    (0, None, Some("finished")),
    (2, Some(2.0), None),
];

fn check(stage: &str, store: &Store) {
    let mut catalog = store.catalog().expect("reads");
    let all: Vec<Listed> = store.list(&mut catalog).expect("lists");
    assert_eq!(all.len(), 5 * 2 * RECORDED.len(), "{stage}");
    for listed in all {
        let summary = listed.summary.clone();
        let sample = summary.sample.expect("has one");
        let (steps, total, why) = RECORDED[sample as usize];
        let was_killed = matches!(summary.iteration, Some(1 | 3 | 4));
        let why = why.or((!was_killed).then_some("truncated"));
        let what = format!("{stage}: iteration {:?}, sample {sample}", summary.iteration);
        assert_eq!((summary.steps, shown(summary.total_reward)), (steps, shown(total)), "{what}");
        assert_eq!(summary.why.as_deref(), why, "{what}");
        assert!(summary.run.is_some_and(|run| run.len() == 300), "{what}");
        assert!(summary.task.is_some_and(|task| matches!(task.len(), 5 | 400)), "{what}");
        let mut times = Vec::new();
        for item in catalog.reader(&listed.key).expect("reads").records() {
            let Item::Record(record) = item.expect("reads") else { panic!("{what} is damaged") };
            times.extend(record.get(fields::TIME).and_then(Value::as_int));
        }
        assert_eq!(
            (summary.first_time, summary.last_time),
            (times.first().copied(), times.last().copied()),
            "{what}"
        );
    }
}

/// A store of 0.1, in which nothing was 0.0 or no name, by whoever summed it up: it is told rightly, also once it is compacted.
#[test]
fn a_store_of_0_1_is_told_rightly() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/summaries/store");
    let scratch = Scratch::new("old");
    copy_all(&golden, &scratch.0);
    let store = || Store::open_existing(&scratch.0, Options::default()).expect("opens");
    check("as it was", &store());
    check("scanned", &store());
    super::compact(&store().run("another", Value::Null).expect("opens"));
    check("compacted", &store());
}
