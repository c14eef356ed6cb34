//! Streams that are read from where they were read last, and what damage makes of that.

use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::{Error, Store, Stream, Value};

use super::{ids, names, options, put, seed, stream, value};

fn three(sim: &SimDisk) -> Stream {
    let first = stream(sim);
    ["a", "b", "c"].iter().for_each(|id| put(&first, id).expect("puts"));
    first
}

/// Writes over the text of an entry, in the log that has it.
fn damage(sim: &SimDisk, id: &str, by: &[u8]) {
    let text = format!("what {id} says");
    let is_it = |part: &[u8]| part == text.as_bytes();
    let found = sim.files().into_iter().find_map(|(path, bytes)| {
        let at = bytes.windows(text.len()).position(is_it).filter(|_| path.ends_with(".seg"))?;
        Some((path, at as u64))
    });
    let (path, at) = found.expect("is in a log");
    sim.process().open_rw(&path).unwrap().write_at(by, at).unwrap();
}

/// A reader gives each entry once, and the store what it has read, also after damage; a freeze reads all of it again.
#[test]
fn what_was_read_stays_and_a_freeze_looks_again() {
    let sim = SimDisk::new(seed() + 50);
    let first = three(&sim);
    let second = stream(&sim);
    let mut reader = second.reader();
    assert_eq!(reader.look().expect("looks").entries.len(), 3);
    let all = second.read().expect("reads");
    damage(&sim, "b", b"WHAT");
    put(&first, "d").expect("puts");
    let news = reader.look().expect("looks");
    assert_eq!((news.entries, news.is_from_start), (vec![("d".to_owned(), value("d"))], false));
    assert_eq!(ids(&second.read().expect("reads")), names(&["a", "b", "c", "d"]));
    let fresh = stream(&sim).read().expect("reads");
    assert_eq!((fresh.entries.len(), fresh.lost.len()), (3, 1), "{fresh:?}");
    assert!(matches!(second.freeze(), Err(Error::Damaged { .. })), "an acknowledged entry is gone");
    assert_eq!(all.entries.len(), 3);
}

/// A damaged entry costs that entry: the others are told once, the loss at each look, and the entry when it is whole again.
#[test]
fn a_damaged_entry_costs_that_entry() {
    let sim = SimDisk::new(seed() + 51);
    let first = three(&sim);
    damage(&sim, "b", b"WHAT");
    let second = stream(&sim);
    let mut reader = second.reader();
    for told in [2, 0] {
        let news = reader.look().expect("looks");
        assert_eq!((news.entries.len(), news.lost.len(), news.is_from_start), (told, 1, false), "{news:?}");
        assert_eq!(second.read().expect("reads").entries.len(), 2);
    }
    put(&first, "d").expect("goes on");
    put(&second, "e").expect("goes on");
    assert_eq!(reader.look().expect("looks").entries.len(), 2);
    let text = b"what".to_vec();
    let path = sim.files().into_iter().find(|(_, bytes)| bytes.windows(11).any(|it| it == b"WHAT b says"));
    let (path, bytes) = path.expect("is damaged");
    let at = bytes.windows(11).position(|it| it == b"WHAT b says").expect("is there") as u64;
    sim.process().open_rw(&path).unwrap().write_at(&text, at).unwrap();
    let news = reader.look().expect("looks");
    assert_eq!((news.entries, news.lost), (vec![("b".to_owned(), value("b"))], vec![]));
    assert_eq!(ids(&second.read().expect("reads")), names(&["a", "b", "c", "d", "e"]));
}

/// What a process has read of a stream, its first put knows: another value is refused as before, and the same is durable.
#[test]
fn a_first_put_knows_what_was_read() {
    let sim = SimDisk::new(seed() + 52);
    let _first = three(&sim);
    let second = stream(&sim);
    assert_eq!(second.reader().look().expect("looks").entries.len(), 3);
    let refused = second.put("a", Value::Int(7)).map(|_| ());
    assert!(matches!(refused, Err(Error::BadInput { .. })), "{refused:?}");
    assert!(
        second.put("b", value("b")).expect("is there").level().is_some(),
        "durable before it was asked for"
    );
}

/// Values that do not fit the memory of a store are read again, and the answers stay the same.
#[test]
fn many_streams_share_what_memory_there_is() {
    let sim = SimDisk::new(seed() + 53);
    let store = Store::on_files(sim.process(), options(None)).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    let large = |name: &str| Value::from(name.repeat((20 << 20) / name.len()));
    let streams: Vec<Stream> = ["one", "two", "three", "four"].iter().map(|name| run.stream(name)).collect();
    for stream in &streams {
        stream.put("large", large(stream.name())).expect("puts").wait().expect("is durable");
    }
    for _ in 0..2 {
        for stream in &streams {
            let view = stream.read().expect("reads");
            assert!(view.entries == [("large".to_owned(), large(stream.name()))], "{}", stream.name());
        }
    }
}
