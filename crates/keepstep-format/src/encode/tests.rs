use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::decode::{Bodies, Body, part_of_value, read_fields, read_value};
use crate::hash::PIECE_BYTES;
use crate::value::{Array, Dtype};

/// A log in memory: each body gets the next offset, and all that it stores is known.
#[derive(Default)]
struct Memory {
    known: RefCell<HashMap<Hash, Stored>>,
    lists: HashMap<[Hash; 2], Arc<SlideList>>,
    bodies: HashMap<u64, Arc<Body>>,
    /// Sum of the lengths of bodies, and of what they would be in full.
    sizes: (usize, u64),
}

impl Known for Memory {
    fn decides(&self) -> bool {
        true
    }

    fn list_that_ends_with(&self, items: &[Hash; 2]) -> Option<Arc<SlideList>> {
        self.lists.get(items).cloned()
    }

    fn find(&self, hash: &Hash) -> InLog {
        self.known.borrow().get(hash).map_or(InLog::No, |stored| InLog::At(Box::new(stored.clone())))
    }
}

impl Bodies for Memory {
    fn body(&mut self, _: u64, offset: u64) -> Option<Arc<Body>> {
        self.bodies.get(&offset).cloned()
    }
}

fn key() -> ContentKey {
    ContentKey::new(&[7; 16])
}

impl Memory {
    /// Stores a value as the log would, and gives its offset.
    fn store(&mut self, value: &Value) -> u64 {
        let key = key();
        let mut encoder = Encoder::value(&key, self);
        encoder.put(value).expect("encodes");
        let encoded = encoder.finish();
        self.keep(encoded)
    }

    fn keep(&mut self, encoded: Encoded) -> u64 {
        let mut references = Vec::new();
        for link in encoded.links {
            match link {
                Link::Placed(reference) => references.push(reference),
                Link::Undecided { hash, take, piece } => {
                    // As the committer does: what is stored by now is referred to.
                    let known = self.known.borrow().get(&hash).map(|stored| (stored.place, stored.take));
                    let (place, stored_take) = known.unwrap_or_else(|| {
                        let offset = self.keep(*piece);
                        (Place { segment: 0, offset, inner: 0, base: 0 }, 0)
                    });
                    references.push(Reference {
                        place,
                        take: if take > 0 { take } else { stored_take },
                        hash,
                    });
                }
            }
        }
        let offset = 128 + 8 * self.bodies.len() as u64;
        for fresh in &encoded.fresh {
            let place = Place { segment: 0, offset, inner: fresh.inner, base: fresh.base };
            let growth = fresh.growth.as_ref().filter(|growth| growth.prefix.is_none());
            let depth = growth.map_or(0, |growth| growth.depth);
            let stored = Stored { place, take: fresh.take, spans: Vec::new(), depth };
            self.known.borrow_mut().insert(fresh.hash, stored);
            if let Some(slides) = fresh.growth.as_ref().and_then(|growth| growth.slides.as_ref()) {
                slides.from.map(|from| self.lists.remove(&from));
                let list = SlideList { hash: fresh.hash, items: Arc::clone(&slides.items) };
                self.lists.insert(list.ending().expect("has two"), Arc::new(list));
            }
        }
        self.sizes.0 += encoded.body.len() + 30 * references.len();
        self.sizes.1 += encoded.full_bytes;
        self.bodies.insert(offset, Arc::new(Body { raw: encoded.body, references }));
        offset
    }

    fn load(&mut self, offset: u64) -> Value {
        let body = self.bodies[&offset].clone();
        // Where it ends is found without reading it, too.
        assert_eq!(part_of_value(&body, 0, 0), Ok(body.whole()));
        read_value(&body, self).expect("decodes")
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        "[a-c]{0,8}".prop_map(Value::from),
        (0usize..40).prop_map(|n| Value::from("long ä text ".repeat(n * 30))),
        (0usize..20_000).prop_map(|n| Value::bytes(vec![n as u8; n])),
        (0u64..2000).prop_map(|n| {
            let data: Vec<u8> = (0..n as i32).flat_map(i32::to_le_bytes).collect();
            Value::Array(Arc::new(Array::new(Dtype::I32, vec![n], data).expect("fits")))
        }),
        (0usize..600).prop_map(|n| Value::Media(Arc::from("image/png"), Arc::from(vec![1u8; n]))),
        any::<[u8; 12]>().prop_map(|mut magnitude| {
            magnitude[11] |= 1;
            Value::Big { negative: magnitude[0] & 1 == 1, magnitude: Arc::from(magnitude) }
        }),
        Just(Value::Repr(Arc::from("socket"), Arc::from("<socket fd=3>".repeat(40)))),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::list),
            prop::collection::vec(inner.clone(), 0..6).prop_map(|values| {
                Value::map(values.into_iter().enumerate().map(|(i, value)| (format!("k{i}"), value)))
            }),
            inner.clone().prop_map(|value| Value::Typed(Arc::from("my.Type"), Arc::new(value))),
            inner.prop_map(Value::shared),
        ]
    })
}

proptest! {
    /// Whatever is stored in whatever order comes back as it was, though most of it is references by then.
    #[test]
    fn values_come_back(values in prop::collection::vec(value(), 1..6)) {
        let mut memory = Memory::default();
        let mut offsets = Vec::new();
        for value in values.iter().chain(values.iter()) {
            offsets.push((memory.store(value), value));
        }
        // Combined, so that prefixes, parts and whole values are met again at other places.
        let all = Value::list(values.clone());
        let more = Value::list(values.iter().cloned().chain([Value::from("more")]));
        for value in [&all, &more, &all] {
            let offset = memory.store(value);
            prop_assert_eq!(&memory.load(offset), value);
        }
        for (offset, value) in offsets {
            prop_assert_eq!(&memory.load(offset), value);
        }
    }

    /// The same values again and again in one body, as they are and as parts of others: they come back.
    #[test]
    fn values_that_stand_twice_in_a_body_come_back(values in prop::collection::vec(value(), 1..5)) {
        let mut memory = Memory::default();
        let list = Value::list(values.clone());
        let longer = Value::list(values.iter().cloned().chain([Value::from("more".repeat(2000))]));
        let map = Value::map([("a", list.clone()), ("b", longer.clone()), ("c", list.clone()), ("d", longer)]);
        for value in [Value::list([list.clone(), list, map.clone()]), map] {
            let offset = memory.store(&value);
            prop_assert_eq!(&memory.load(offset), &value);
        }
    }

    /// No bytes at all make the decoder panic, hang or allocate without end.
    #[test]
    fn any_bytes_are_met_calmly(raw in prop::collection::vec(any::<u8>(), 0..400)) {
        let reference = Reference { place: Place { segment: 0, offset: 128, inner: 1, base: 0 }, take: 3, hash: [0; 16] };
        let body = Body { raw, references: vec![reference; 4] };
        let mut memory = Memory::default();
        memory.bodies.insert(128, Arc::new(body.clone()));
        let _ = read_value(&body, &mut memory);
        let _ = read_fields(&body, &mut memory);
    }
}

/// A chat of 200 turns, told again in full at every turn, costs what is new.
#[test]
fn a_growing_history_costs_what_is_new() {
    let mut memory = Memory::default();
    let mut messages: Vec<Value> = Vec::new();
    let mut new_bytes = 0;
    for turn in 0..200u32 {
        let content: String =
            (0..2048u32).map(|i| char::from(b'a' + (i.wrapping_mul(turn + 7) % 23) as u8)).collect();
        new_bytes += content.len();
        messages.push(Value::map([("role", Value::from("user")), ("content", Value::from(content))]));
        let prompt = Value::list(messages.iter().cloned());
        let offset = memory.store(&prompt);
        if turn % 50 == 49 {
            assert_eq!(memory.load(offset), prompt, "turn {turn}");
        }
    }
    let (stored, full) = memory.sizes;
    assert!(stored < new_bytes * 106 / 100, "{stored} bytes stored for {new_bytes} new ones");
    assert!(full > 90 * stored as u64, "{full} bytes in full");
}

/// Token ids that grow by a few hundred a turn are not stored again and again.
#[test]
fn a_growing_array_shares_its_beginning() {
    let mut memory = Memory::default();
    let mut full = 0;
    for turn in 0..50u64 {
        let count = 2000 + 200 * turn;
        let data: Vec<u8> = (0..count as i32).flat_map(|i| i.wrapping_mul(2_654_435).to_le_bytes()).collect();
        full += data.len();
        let value = Value::Array(Arc::new(Array::new(Dtype::I32, vec![count], data).expect("fits")));
        let offset = memory.store(&value);
        assert_eq!(memory.load(offset), value, "turn {turn}");
    }
    assert!(memory.sizes.0 * 7 < full, "{} of {full}", memory.sizes.0);
    let longer = memory.store(&Value::bytes(vec![5u8; PIECE_BYTES * 3 + 5]));
    assert_eq!(memory.load(longer), Value::bytes(vec![5u8; PIECE_BYTES * 3 + 5]));
}

/// A value that another thread is about to store is set aside, and the committer decides.
#[test]
fn what_is_pending_is_left_to_the_committer() {
    struct AllPending;
    impl Known for AllPending {
        fn find(&self, _: &Hash) -> InLog {
            InLog::Pending
        }
    }
    let long = Value::from("x".repeat(10_000));
    let list = Value::list([long.clone(), Value::from("short"), long]);
    let key = key();
    let mut encoder = Encoder::fields(&key, &AllPending);
    encoder.field(9);
    encoder.put(&list).expect("encodes");
    let encoded = encoder.finish();
    assert!(encoded.body.len() < 100, "{}", encoded.body.len());
    let undecided = encoded.links.iter().filter(|link| matches!(link, Link::Undecided { .. })).count();
    assert_eq!((undecided, encoded.links.len()), (2, 2), "each text is left to the committer");
    let mut memory = Memory::default();
    let offset = memory.keep(encoded);
    let body = memory.bodies[&offset].clone();
    assert_eq!(read_fields(&body, &mut memory).expect("decodes"), [(9, list)]);
}

/// A prompt that is also in the state of the same step, whole or as the beginning of a longer list, is stored once.
#[test]
fn what_stands_twice_in_a_body_is_stored_once() {
    let text = |seed: u32| {
        let mut state = seed;
        let letters = (0..50_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 27) as u8 % 26)
        });
        Value::from(letters.collect::<String>())
    };
    let (one, two) = (text(1), text(2));
    let list = Value::list([one.clone(), two.clone()]);
    let longer = Value::list([one.clone(), two.clone(), Value::from("short")]);
    let array = Value::Array(Arc::new(Array::new(Dtype::U8, vec![50_000], vec![7; 50_000]).expect("fits")));
    for (value, bytes) in [
        (Value::list([one.clone(), one.clone(), one.clone()]), 50_000),
        (Value::map([("prompt", list.clone()), ("state", Value::map([("messages", list)]))]), 100_000),
        (Value::map([("prompt", longer.clone()), ("text", two), ("messages", longer)]), 100_000),
        (Value::list([array.clone(), Value::Typed(Arc::from("T"), Arc::new(array))]), 50_000),
    ] {
        let mut memory = Memory::default();
        let offset = memory.store(&value);
        assert_eq!(memory.load(offset), value);
        assert!(memory.sizes.0 < bytes + 1000, "{} bytes for {bytes} new ones", memory.sizes.0);
    }
    // A card has no references, whatever stands in it twice.
    let key = key();
    let mut encoder = Encoder::value(&key, &NothingKnown);
    encoder.put(&Value::list([one.clone(), one])).expect("encodes");
    assert!(encoder.finish().links.is_empty());
}

/// Depth is limited on the way in, so that it never surprises anybody on the way out.
#[test]
fn a_value_that_is_too_deep_is_refused() {
    let deep = |depth: usize| (0..depth).fold(Value::Null, |value, _| Value::list([value]));
    let key = key();
    assert!(Encoder::value(&key, &NothingKnown).put(&deep(DEPTH_MAX - 1)).is_ok());
    assert_eq!(Encoder::value(&key, &NothingKnown).put(&deep(DEPTH_MAX)), Err(EncodeError::TooDeep));
    let mut memory = Memory::default();
    let offset = memory.store(&deep(DEPTH_MAX - 1));
    assert_eq!(memory.load(offset), deep(DEPTH_MAX - 1));
}

/// A message of a chat: `bytes` of noise, and its number.
fn message(number: u64, bytes: usize) -> Value {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letters = (0..bytes).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 59) as u8 % 26)
    });
    Value::map([("n", Value::Int(number as i64)), ("content", Value::from(letters.collect::<String>()))])
}

/// What happens to a history between two steps.
#[derive(Debug, Clone)]
enum Edit {
    Append(usize),
    DropOldest(usize),
    DropBehindTheFirst(usize),
    ReplaceMiddle { from: usize, count: usize, by: usize },
    DropNewest(usize),
    PutInFront,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0usize..6).prop_map(Edit::Append),
        3 => (0usize..6).prop_map(Edit::DropOldest),
        3 => (0usize..6).prop_map(Edit::DropBehindTheFirst),
        2 => (0usize..20, 0usize..12, 0usize..4).prop_map(|(from, count, by)| Edit::ReplaceMiddle { from, count, by }),
        1 => (0usize..4).prop_map(Edit::DropNewest),
        1 => Just(Edit::PutInFront),
    ]
}

fn apply(messages: &mut Vec<u64>, next: &mut u64, edit: &Edit) {
    let mut fresh = |count: usize| {
        let first = *next;
        *next += count as u64;
        first..first + count as u64
    };
    let length = messages.len();
    match *edit {
        Edit::Append(count) => messages.extend(fresh(count)),
        Edit::DropOldest(count) => drop(messages.drain(..count.min(length))),
        Edit::DropBehindTheFirst(count) if length > 1 => drop(messages.drain(1..(1 + count).min(length))),
        Edit::DropBehindTheFirst(_) => {}
        Edit::ReplaceMiddle { from, count, by } => {
            let from = from.min(length);
            drop(messages.splice(from..(from + count).min(length), fresh(by)));
        }
        Edit::DropNewest(count) => messages.truncate(length.saturating_sub(count)),
        Edit::PutInFront => messages.insert(0, fresh(1).start),
    }
}

proptest! {
    /// However a history is cut and put together between steps, each version of it comes back.
    #[test]
    fn histories_that_slide_come_back(
        edits in prop::collection::vec(prop::collection::vec(edit(), 1..3), 1..40),
        bytes in prop_oneof![Just(60usize), Just(300), Just(5000)],
    ) {
        let mut memory = Memory::default();
        let (mut messages, mut next) = ((0..20).collect::<Vec<u64>>(), 20);
        let mut told = Vec::new();
        for edits in edits {
            edits.iter().for_each(|edit| apply(&mut messages, &mut next, edit));
            let prompt = Value::list(messages.iter().map(|&number| message(number, bytes)));
            told.push((memory.store(&prompt), prompt));
        }
        for (offset, prompt) in told {
            prop_assert_eq!(&memory.load(offset), &prompt);
        }
    }
}

/// A window of 400 messages that moves by one a step costs the new message and a few references; so does one that keeps its
/// first message, and one whose middle is summed up now and then. Without it, each kept message costs a reference.
#[test]
fn a_window_that_slides_costs_what_is_new() {
    for (keeps_first, sums_up, bytes) in
        [(false, false, 300), (true, false, 300), (true, true, 300), (false, false, 100)]
    {
        let mut memory = Memory::default();
        let mut window: Vec<u64> = (0..400).collect();
        memory.store(&Value::list(window.iter().map(|&number| message(number, bytes))));
        let before = memory.sizes.0;
        let steps = 320;
        for step in 0..steps {
            window.remove(usize::from(keeps_first));
            if sums_up && step % 40 == 39 {
                window.splice(1..30, [1_000_000 + step]);
            }
            window.push(400 + step);
            let prompt = Value::list(window.iter().map(|&number| message(number, bytes)));
            let offset = memory.store(&prompt);
            if step % 37 == 0 {
                assert_eq!(memory.load(offset), prompt, "step {step}");
            }
        }
        let each = (memory.sizes.0 - before) / steps as usize;
        let kept = if bytes < 256 { 400 * bytes } else { 400 * 31 };
        let limit = bytes + 150 + kept / 32;
        assert!(each < limit, "{each} bytes a step, at most {limit}: {keeps_first} {sums_up} {bytes}");
    }
}
