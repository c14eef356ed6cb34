//! Stores of every version that was ever released stay readable: `tests/golden/` is read, value by value.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod program;

use std::path::{Path, PathBuf};
use std::process::Command;

use program::copy_all;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// A copy: reading leaves a card for what it found in a dead writer's log.
fn copy_of(store: &Path, name: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&copy);
    copy_all(store, &copy);
    copy
}

fn keepstep(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_keepstep")).args(arguments).output().expect("runs")
}

/// Each golden store gives the values that it gave when it was made, and verifies.
#[test]
fn golden_stores_stay_readable() {
    let mut seen = 0;
    for entry in std::fs::read_dir(golden()).expect("tests/golden is there") {
        let dir = entry.expect("lists").path();
        if !dir.is_dir() {
            continue;
        }
        let name = dir.file_name().expect("has one").to_string_lossy().into_owned();
        let copy = copy_of(&dir.join("store"), &name);
        let store = copy.to_str().expect("is text");
        let expected = std::fs::read(dir.join("expected.jsonl")).expect("is there");
        let dumped = keepstep(&["dump", store]);
        assert!(dumped.status.success(), "{name}: {}", String::from_utf8_lossy(&dumped.stderr));
        assert!(dumped.stdout == expected, "{name} is not what it was when it was made");
        let verified = keepstep(&["verify", store]);
        assert!(verified.status.success(), "{name}: {}", String::from_utf8_lossy(&verified.stdout));
        std::fs::remove_dir_all(&copy).expect("removes");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} golden stores");
}
