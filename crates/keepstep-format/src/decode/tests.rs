use std::collections::HashMap;

use super::fetch::LINKS_MAX;
use super::*;

/// Records by their offset, each of which may refer to any other; remembers nothing, or all.
#[derive(Default)]
struct TestLog {
    bodies: HashMap<u64, Arc<Body>>,
}

impl Bodies for TestLog {
    fn body(&mut self, _: u64, offset: u64) -> Option<Arc<Body>> {
        self.bodies.get(&offset).cloned()
    }
}

fn to(offset: u64, take: u64) -> Reference {
    Reference { place: Place { segment: 0, offset, inner: 0, base: 0 }, take, hash: [7; 16] }
}

fn chain(links: u64, record: impl Fn(u64) -> Body) -> (TestLog, Arc<Body>) {
    let mut log = TestLog::default();
    for link in 0..=links {
        log.bodies.insert(link * 8, Arc::new(record(link)));
    }
    let last = Arc::clone(&log.bodies[&(links * 8)]);
    (log, last)
}

/// Nesting is counted across references, or a chain of them would use up the stack.
#[test]
fn values_nested_across_records_are_refused_in_time() {
    let (mut log, last) = chain(600, |link| {
        let mut raw = [tag::LIST, 1].repeat(126);
        raw.push(if link == 0 { tag::NULL } else { tag::REF });
        Body { raw, references: vec![to(link.wrapping_sub(1).wrapping_mul(8), 0)] }
    });
    let mut value = read_value(&last, &mut log).unwrap();
    let mut depth = 0;
    while let Value::List(items) = value {
        value = items[0].clone();
        depth += 1;
    }
    assert!(depth <= DEPTH_MAX && matches!(value, Value::Lost(_)), "{depth}: {value:?}");
}

/// A list that grew link by link is read as far as links are followed, and no further.
#[test]
fn a_chain_that_is_too_long_is_lost_and_uses_no_more_stack() {
    for links in [1, 100, LINKS_MAX as u64 - 1, LINKS_MAX as u64 + 100] {
        let (mut log, last) = chain(links, |link| match link {
            0 => Body { raw: vec![tag::LIST, 1, tag::NULL], references: vec![] },
            _ => Body {
                raw: vec![tag::LIST_MORE, 1, 0, 1, tag::NULL],
                references: vec![to((link - 1) * 8, link)],
            },
        });
        let value = read_value(&last, &mut log).unwrap();
        assert_eq!(value.as_list().unwrap().len() as u64, links + 1);
        assert_eq!(value.has_lost(), links > LINKS_MAX as u64);
    }
}

/// Two references to one that has two references, and so on: lost in time, not unfolded for ever.
#[test]
fn a_record_that_unfolds_without_end_is_refused() {
    let (mut log, last) = chain(100, |link| {
        let raw = if link == 0 { vec![tag::NULL] } else { vec![tag::LIST, 2, tag::REF, tag::REF] };
        Body { raw, references: vec![to(link.wrapping_sub(1).wrapping_mul(8), 0); 2] }
    });
    let value = read_value(&last, &mut log);
    assert!(value.is_err() || value.is_ok_and(|value| value.has_lost()));
}

/// Lengths that no file can have are met without a panic and without memory for them.
#[test]
fn absurd_lengths_are_lost() {
    let mut log = TestLog::default();
    let absurd = [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 27];
    for take in absurd {
        for raw in [
            vec![tag::LIST_MORE, 1, 0, 0],
            vec![tag::STR_MORE, 1, 0, 0],
            vec![tag::BYTES_MORE, 1, 0, 0],
            vec![tag::ARRAY_MORE, 5, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0],
        ] {
            let body = Body { raw, references: vec![to(8, take)] };
            if let Ok(value) = read_value(&body, &mut log) {
                assert!(value.has_lost(), "{value:?}");
                assert!(value.as_list().is_none_or(|items| items.len() == 1));
            }
        }
    }
}

/// A damaged or hostile place may name any reference: what is said to be a part of a body lies inside of it.
#[test]
fn a_part_of_a_body_lies_inside_of_it() {
    let body = Body { raw: vec![tag::NULL, tag::REF], references: vec![to(8, 1)] };
    for inner in 0..4 {
        for base in [0, 1, 2, 3, u32::MAX] {
            if let Ok(part) = part_of_value(&body, inner, base) {
                assert!(body.raw.get(part.bytes.clone()).is_some(), "{inner}, {base}: {part:?}");
                assert!(body.references.get(part.references.clone()).is_some(), "{inner}, {base}: {part:?}");
            }
        }
    }
    assert_eq!(part_of_value(&body, 0, 1), Ok(Part { bytes: 0..1, references: 1..1 }));
    assert!(part_of_value(&body, 0, 2).is_err());
}

/// A log that remembers every value that was read.
#[derive(Default)]
struct RememberingLog {
    log: TestLog,
    known: HashMap<Place, Unfolded>,
}

impl Bodies for RememberingLog {
    fn body(&mut self, segment: u64, offset: u64) -> Option<Arc<Body>> {
        self.log.body(segment, offset)
    }

    fn cached(&mut self, place: &Place) -> Option<Unfolded> {
        self.known.get(place).cloned()
    }

    fn cache(&mut self, place: &Place, unfolded: &Unfolded) {
        self.known.insert(*place, unfolded.clone());
    }
}

/// A list that keeps its first item and slides behind it is two slices of the one before it. Each slice counted for all of
/// that list, so the size doubled with each slide, and soon no cache took the list.
#[test]
fn a_list_that_slides_counts_once_for_the_one_that_it_slid_from() {
    const ITEMS: u64 = 50;
    let text = [[tag::STR, 100].as_slice(), &[b'x'; 100]].concat();
    let (log, _) = chain(20, |link| match link {
        0 => Body {
            raw: [[tag::LIST, ITEMS as u8].as_slice(), &text.repeat(ITEMS as usize)].concat(),
            references: vec![],
        },
        _ => {
            let before = (link - 1) * 8;
            let raw = [[tag::LIST_MORE, 2, 0, 2, 1].as_slice(), &text].concat();
            Body { raw, references: vec![to(before, 1), to(before, ITEMS)] }
        }
    });
    let mut log = RememberingLog { log, known: HashMap::new() };
    let mut sizes = Vec::new();
    for link in 0..=20 {
        let body = Arc::new(Body { raw: vec![tag::REF], references: vec![to(link * 8, 0)] });
        let value = read_value(&body, &mut log).unwrap();
        let items = value.as_list().unwrap_or_else(|| panic!("list {link}: {value:?}"));
        assert_eq!(items.len() as u64, ITEMS);
        sizes.push(log.known[&to(link * 8, 0).place].bytes);
    }
    assert!(sizes[20] < sizes[0] * 20, "{sizes:?}");
    // Slices that overlap count each time: a small hostile file must not unfold without end.
    let raw = vec![tag::LIST_MORE, 2, 0, 0, 0];
    let body = Arc::new(Body { raw, references: vec![to(0, ITEMS), to(0, ITEMS)] });
    log.log.bodies.insert(1000, body);
    let twice = Arc::new(Body { raw: vec![tag::REF], references: vec![to(1000, 0)] });
    read_value(&twice, &mut log).unwrap();
    assert!(log.known[&to(1000, 0).place].bytes >= 2 * sizes[0]);
}

/// A record whose every field is of another form, most with references: 1 to 9.
fn every_form() -> (TestLog, Body) {
    let mut log = TestLog::default();
    let listed = Body { raw: vec![tag::LIST, 2, tag::NULL, tag::TRUE], references: vec![] };
    let text = Body { raw: vec![tag::STR, 2, b'a', b'b'], references: vec![] };
    let array = Body { raw: vec![tag::ARRAY, Dtype::U8 as u8, 1, 2, 7, 8], references: vec![] };
    for (offset, body) in [(8, listed), (16, text), (24, array)] {
        log.bodies.insert(offset, Arc::new(body));
    }
    let mut raw = vec![9];
    let mut field = |number: u8, value: &[u8]| {
        raw.push(number);
        raw.extend_from_slice(value);
    };
    field(1, &[tag::REF]);
    field(2, &[tag::MAP, 1, tag::STR, 1, b'k', tag::REF]);
    field(3, &[tag::LIST_MORE, 1, 1, 1, tag::FALSE]);
    field(4, &[tag::STR_MORE, 1, 0, 1, b'c']);
    field(5, &[tag::ARRAY_MORE, Dtype::U8 as u8, 1, 3, 1, 0, 9]);
    field(6, &[tag::TYPED, 1, b'T', tag::LIST, 2, tag::INT, 4, tag::REF]);
    field(7, &[tag::FLOAT, 0, 0, 0, 0, 0, 0, 0, 0]);
    field(8, &[tag::MEDIA, 1, b'm', 2, 1, 2]);
    field(9, &[tag::REF]);
    let references = [to(8, 0), to(16, 0), to(8, 2), to(16, 2), to(24, 2), to(24, 0), to(99, 0)];
    (log, Body { raw, references: references.to_vec() })
}

/// Whichever fields are wanted: they are read as if all were, and what is passed over leaves the place behind it right.
#[test]
fn some_fields_are_read_as_all_are() {
    let (mut log, body) = every_form();
    let all = read_fields(&body, &mut log).unwrap();
    assert_eq!(all.len(), 9);
    assert!(matches!(all[8].1, Value::Lost(_)) && all[..8].iter().all(|(_, value)| !value.has_lost()));
    for bits in 0..1u16 << 9 {
        let wanted: Vec<u8> = (1..=9).filter(|number| bits & 1 << (number - 1) != 0).collect();
        let known: Vec<_> = all.iter().filter(|(number, _)| wanted.contains(number)).cloned().collect();
        let wants = Wanted::of(wanted.iter().copied());
        let found = read_wanted_fields_of(&body, &body.whole(), &wants, &mut log).unwrap();
        assert_eq!(found, known, "{wanted:?}");
    }
    let cut = Body { raw: body.raw[..body.raw.len() - 1].to_vec(), ..body };
    assert!(read_wanted_fields_of(&cut, &cut.whole(), &Wanted::of([]), &mut log).is_err());
}

/// What nobody wants is not fetched.
#[test]
fn a_field_that_is_passed_over_fetches_nothing() {
    struct Refusing;
    impl Bodies for Refusing {
        fn body(&mut self, _: u64, offset: u64) -> Option<Arc<Body>> {
            panic!("the record at {offset} was fetched")
        }
    }
    let (_, body) = every_form();
    let wants = Wanted::of([7, 8]);
    assert_eq!(read_wanted_fields_of(&body, &body.whole(), &wants, &mut Refusing).unwrap().len(), 2);
}
