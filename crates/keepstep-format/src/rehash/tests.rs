use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::encode::{Encoder, NothingKnown};

fn key() -> ContentKey {
    ContentKey::new(&[3; 16])
}

fn leaves() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float),
        (any::<bool>(), vec(1u8.., 9..400))
            .prop_map(|(negative, magnitude)| Value::Big { negative, magnitude: Arc::from(magnitude) }),
        "[a-zä🧀]{0,300}".prop_map(Value::from),
        (0usize..20_000, any::<u8>()).prop_map(|(length, byte)| Value::bytes(vec![byte; length])),
        (240usize..260).prop_map(|length| Value::from("x".repeat(length))),
        (0u64..3000, 0usize..17).prop_map(|(length, dtype)| {
            let dtype = Dtype::ALL[dtype];
            let data = (0..length as usize * dtype.item_bytes()).map(|i| (i % 251) as u8).collect();
            Value::Array(Arc::new(Array::new(dtype, vec![length], data).unwrap()))
        }),
        ("[a-z/]{0,20}", vec(any::<u8>(), 0..600))
            .prop_map(|(kind, data)| Value::Media(kind.into(), data.into())),
        ("[A-Z]{1,5}", "[a-z]{0,300}").prop_map(|(name, text)| Value::Repr(name.into(), text.into())),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    leaves().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::list),
            vec((leaves(), inner.clone()), 0..4).prop_map(|entries| Value::Map(Arc::new(entries))),
            ("[A-Za-z]{1,9}", inner.clone()).prop_map(|(name, v)| Value::Typed(name.into(), Arc::new(v))),
            inner.prop_map(Value::shared),
        ]
    })
}

/// The hash that the encoder takes of a whole value, if it is long enough to get one.
fn encoded_hash(value: &Value) -> Option<Hash> {
    let key = key();
    let mut encoder = Encoder::value(&key, &NothingKnown);
    encoder.put(value).unwrap();
    let fresh = encoder.finish().fresh;
    fresh.into_iter().find(|fresh| fresh.inner == 0 && fresh.take == 0).map(|fresh| fresh.hash)
}

proptest! {
    /// What was hashed on the way to disk has the same hash on the way back.
    #[test]
    fn a_value_that_was_read_hashes_as_it_was_written(value in values()) {
        if let Some(hash) = encoded_hash(&value) {
            let key = key();
            let mut rehash = Rehash::new(&key);
            prop_assert_eq!(rehash.value(&value), Some(hash));
            prop_assert_eq!(rehash.value(&value), Some(hash), "and once more, from memory");
        }
    }

    /// Every value that the encoder offers to later records is found by its hash: also the beginnings.
    #[test]
    fn whatever_can_be_referred_to_can_be_found(value in values()) {
        let key = key();
        let mut encoder = Encoder::value(&key, &NothingKnown);
        encoder.put(&value).unwrap();
        let wanted: HashSet<Hash> = encoder.finish().fresh.into_iter().map(|fresh| fresh.hash).collect();
        let mut found = HashSet::new();
        Rehash::new(&key).find(&value, &wanted, &mut |hash, _| {
            found.insert(hash);
        });
        prop_assert_eq!(found, wanted);
    }
}

/// What a longer value begins with has the hash that a reference to the beginning has.
#[test]
fn beginnings_hash_as_the_encoder_hashes_them() {
    let key = key();
    let array = Array::new(Dtype::U16, vec![3, 2000], vec![7; 12_000]).unwrap();
    for value in [Value::from("ü".repeat(5000)), Value::bytes(vec![1; 9000]), Value::Array(Arc::new(array))]
    {
        let mut encoder = Encoder::value(&key, &NothingKnown);
        encoder.put(&value).unwrap();
        let fresh = encoder.finish().fresh.into_iter().find(|fresh| fresh.take > 0).unwrap();
        assert_eq!(Rehash::new(&key).prefix(&value, fresh.take), Some(fresh.hash), "{value:?}");
        assert_eq!(Rehash::new(&key).prefix(&value, fresh.take + 1), None, "{value:?}");
    }
    let list = Value::list((0..50).map(|i| Value::from(format!("{i}").repeat(100))));
    let shorter = Value::list(list.as_list().unwrap()[..30].iter().cloned());
    assert_eq!(Rehash::new(&key).prefix(&list, 30), Rehash::new(&key).value(&shorter));
    assert_eq!(Rehash::new(&key).prefix(&list, 51), None);
}

/// A text of which a piece ends in the middle of a character is found as bytes, and cut back by whoever reads it.
#[test]
fn a_beginning_that_is_no_text_is_found_as_bytes() {
    let key = key();
    let value = Value::from(format!("x{}", "ü".repeat(5000)));
    let hash = Rehash::new(&key).prefix(&value, 4096).unwrap();
    let mut found = Vec::new();
    Rehash::new(&key).find(&value, &HashSet::from([hash]), &mut |_, value| found.push(value));
    assert_eq!(found, [Value::bytes(&value.as_str().unwrap().as_bytes()[..4096])]);
}

/// What was lost has no hash, and nothing that holds it has one.
#[test]
fn a_value_with_a_lost_part_has_no_hash() {
    let key = key();
    let list = Value::list([Value::from("x".repeat(300)), Value::Lost([0; 16])]);
    assert_eq!(Rehash::new(&key).value(&list), None);
    assert!(Rehash::new(&key).prefix(&list, 1).is_some());
}
