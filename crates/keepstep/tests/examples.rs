//! The examples do what they say: they are run here as part of a program.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use keepstep::{Options, Store, Value};

#[path = "../examples/reader.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod reader;
#[path = "../examples/recorder.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod recorder;
#[path = "../examples/worker.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod worker;

#[test]
fn what_is_recorded_and_worked_on_is_read() {
    let dir = std::env::temp_dir().join(format!("keepstep-examples-{}", std::process::id()));
    let store = Store::open(&dir, Options::default()).unwrap();
    let recorded = store.run("recorder", Value::Null).unwrap();
    assert_eq!(recorder::record(&recorded, "count", 4).unwrap(), 4);
    assert_eq!(reader::read(&recorded).unwrap(), ["count: finished, 4 steps, rewards [1.0, 1.0, 1.0, 1.0]"]);
    let evaluation = store.run("evaluation", Value::Null).unwrap();
    assert_eq!(worker::work(&evaluation).unwrap(), 20);
    assert_eq!(worker::work(&evaluation).unwrap(), 0);
    assert_eq!(reader::read(&evaluation).unwrap().len(), 20);
    drop((recorded, evaluation, store));
    std::fs::remove_dir_all(dir).unwrap();
}
