//! What a store may contain that keepstep never made: pipes, devices, sparse terabytes, odd names. Nothing hangs, nothing
//! takes memory by what a file says of its length, and what is whole stays readable.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::path::Path;

use keepstep::tend::CompactOptions;
use keepstep::{EpisodeName, Opening, Options, Step, Store, Value};

use scratch::Scratch;

const TERABYTE: u64 = 1 << 40;

fn record(store: &Store, sample: i64) {
    let name = EpisodeName::task("task").sample(sample);
    let episode = store.run("run", Value::Null).unwrap().episode(name).unwrap();
    episode.step(Step::new().observation("a shop")).unwrap();
    episode.end("truncated", keepstep::Ending::default()).unwrap().wait().unwrap();
}

/// Goes on with what had been truncated: its owner is told by a letter.
fn go_on(store: &Store, sample: i64) {
    let name = EpisodeName::task("task").sample(sample);
    let how = Opening::default().retry(["truncated"]);
    let episode = store.run("run", Value::Null).unwrap().open(name, how).unwrap();
    episode.end("finished", keepstep::Ending::default()).unwrap().wait().unwrap();
}

/// A store of two writers; gives a segment of the first.
fn store_of_two(scratch: &Scratch) -> std::path::PathBuf {
    let store = scratch.store();
    record(&store, 0);
    store.close();
    let first = scratch.files(".seg").remove(0);
    let store = scratch.store();
    record(&store, 1);
    store.close();
    first
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn sparse(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
        .set_len(bytes)
        .unwrap();
}

/// Listing, verifying and recording go on; the other writer's episode is there.
fn works_all_the_same(scratch: &Scratch, what: &str) {
    let store = Store::open(&scratch.0, Options::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let attempts = store.catalog().unwrap().attempts().unwrap();
    assert!(!attempts.is_empty(), "{what}");
    let report = store.verify(&mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!report.is_whole(), "{what}: {report:?}");
    record(&store, 7);
}

/// A pipe under the name of a segment made `ls`, `verify` and `stats` wait for somebody who writes to it.
#[test]
fn a_segment_that_is_no_file_is_damage() {
    for stranger in ["pipe", "device", "loop", "socket"] {
        let scratch = Scratch::new(&format!("no-file-{stranger}"));
        let segment = store_of_two(&scratch);
        std::fs::remove_file(&segment).unwrap();
        let _kept = match stranger {
            "pipe" => {
                pipe(&segment);
                None
            }
            "device" => std::os::unix::fs::symlink("/dev/zero", &segment).map(|()| None).unwrap(),
            "loop" => {
                std::os::unix::fs::symlink(segment.file_name().unwrap(), &segment).map(|()| None).unwrap()
            }
            _ => std::os::unix::net::UnixListener::bind(segment.file_name().unwrap())
                .ok()
                .inspect(|_| std::fs::rename(segment.file_name().unwrap(), &segment).unwrap()),
        };
        works_all_the_same(&scratch, stranger);
    }
}

/// A segment that says it is a terabyte long is not read for hours; also where no card says how long it was when its writer
/// closed it.
#[test]
fn a_segment_of_absurd_length_is_damage() {
    for has_card in [true, false] {
        let scratch = Scratch::new("absurd");
        sparse(&store_of_two(&scratch), TERABYTE);
        if !has_card {
            std::fs::remove_dir_all(scratch.0.join("scans")).unwrap();
        }
        works_all_the_same(&scratch, "a sparse segment");
    }
}

/// A sparse terabyte under the name of a small file ended the process, which asked for so much memory.
#[test]
fn small_files_of_absurd_length_or_kind_are_damage() {
    for name in ["keepstep.json", "lock", "beat", ".run", ".claim"] {
        for how in ["sparse", "pipe", "directory"] {
            let scratch = Scratch::new(&format!("small{}-{how}", name.replace('.', "-")));
            let segment = store_of_two(&scratch);
            let path = match name {
                "keepstep.json" => scratch.0.join(name),
                "lock" | "beat" => segment.parent().unwrap().join(name),
                ending => scratch.files(ending).remove(0),
            };
            std::fs::remove_file(&path).unwrap();
            match how {
                "sparse" => sparse(&path, TERABYTE),
                "pipe" => pipe(&path),
                _ => std::fs::create_dir(&path).unwrap(),
            }
            let store = Store::open(&scratch.0, Options::default())
                .unwrap_or_else(|error| panic!("{name} {how}: {error}"));
            assert!(!store.catalog().unwrap().attempts().unwrap().is_empty(), "{name} {how}");
            store.verify(&mut |_| {}).unwrap_or_else(|error| panic!("{name} {how}: {error}"));
        }
    }
}

/// A copy of a store in which each file is a link to where its bytes are, as caches of datasets make it, can be read.
#[test]
fn a_store_of_links_to_files_can_be_read() {
    let (scratch, links) = (Scratch::new("bytes"), Scratch::new("links"));
    store_of_two(&scratch);
    for file in scratch.files("") {
        let link = links.0.join(file.strip_prefix(&scratch.0).unwrap());
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
    }
    let store = Store::open_existing(&links.0, Options::default()).unwrap();
    assert_eq!(store.catalog().unwrap().attempts().unwrap().len(), 2);
    assert!(store.verify(&mut |_| {}).unwrap().is_whole());
}

/// Names that keepstep would not give are passed over, also where the number behind them would be none.
#[test]
fn odd_names_in_folders_are_passed_over() {
    const HIGHEST: &str = "18446744073709551615";
    let scratch = Scratch::new("names");
    let segment = store_of_two(&scratch);
    let writer = segment.parent().unwrap().file_name().unwrap().to_owned();
    let folders = ["mail", "writers"].map(|it| scratch.0.join(it).join(&writer));
    for folder in folders.iter().chain(&["heals", "grouped"].map(|it| scratch.0.join(it))) {
        std::fs::create_dir_all(folder).unwrap();
        for name in ["-1", "00", "0x1", "a\nb", "💥", ".seg"] {
            std::fs::write(folder.join(name), b"what?").unwrap();
        }
        for ending in ["", ".seg", ".manifest", ".copy"] {
            std::fs::write(folder.join(format!("{HIGHEST}{ending}")), b"what?").unwrap();
        }
    }
    let store = scratch.store();
    assert_eq!(store.catalog().unwrap().attempts().unwrap().len(), 2);
    store.verify(&mut |_| {}).unwrap();
    store.heal(&mut |_| {}).unwrap();
    record(&store, 9);
    // Whoever adds to one of these lists takes the number behind the last: here a letter, and a manifest.
    go_on(&store, 0);
    let options = CompactOptions::default().grace(std::time::Duration::ZERO);
    assert!(store.compact(options, &mut |_| {}).unwrap().logs > 0);
    assert_eq!(scratch.store().catalog().unwrap().attempts().unwrap().len(), 4);
}
