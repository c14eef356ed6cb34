//! Small files are read back as they were written, or not at all.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const STORE: Id = Id([3; 16]);

proptest! {
    /// A card comes back from its own path of its own store, and from no other.
    #[test]
    fn cards_come_back(kind: u16, body in vec(any::<u8>(), 0..200), path in "[a-z/0-9.]{1,30}") {
        let bytes = Card::encode(&STORE, &path, kind, &body);
        prop_assert_eq!(Card::decode(&bytes, &STORE, &path), Ok(Card { kind, body }));
        prop_assert_eq!(Card::decode(&bytes, &STORE, &format!("{path}x")), Err(CardError::Damaged));
        prop_assert_eq!(Card::decode(&bytes, &Id::NONE, &path), Err(CardError::Damaged));
    }

    /// Any bytes are read without a panic.
    #[test]
    fn any_bytes_are_no_card(mut bytes in vec(any::<u8>(), 0..80)) {
        prop_assert!(Card::decode(&bytes, &STORE, "a").is_err());
        bytes.splice(0..0, *b"KEEPCARD");
        prop_assert!(Card::decode(&bytes, &STORE, "a").is_err());
        prop_assert_eq!(Beat::decode(&bytes), None);
    }

    /// A beat comes back.
    #[test]
    fn beats_come_back(counter: u64, time: i64) {
        let beat = Beat { counter, time };
        prop_assert_eq!(Beat::decode(&beat.encode()), Some(beat));
    }

    /// The store's file comes back.
    #[test]
    fn store_json_comes_back(store: [u8; 16], created: i64) {
        prop_assert_eq!(parse_store_json(&store_json(&Id(store), created)), Ok((Id(store), created)));
    }

    /// Any text is read without a panic.
    #[test]
    fn any_text_is_no_store(text in "[{}\\[\\]\",:a-z0-9\\\\ ]{0,60}") {
        prop_assert!(parse_store_json(&text).is_err());
    }
}

/// No flip makes another card of it, and none makes it look like a newer version.
#[test]
fn a_flipped_bit_in_a_card_is_found() {
    let bytes = Card::encode(&STORE, "heals/0", kind::HEAL, b"some body");
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 64 { CardError::NotACard } else { CardError::Damaged };
        assert_eq!(Card::decode(&flipped, &STORE, "heals/0"), Err(expected), "bit {bit}");
    }
}

/// A card that is cut, or has something behind it, is damaged.
#[test]
fn a_card_is_exactly_its_file() {
    let mut bytes = Card::encode(&STORE, "heals/0", kind::HEAL, b"some body");
    for cut in 0..bytes.len() {
        assert_eq!(Card::decode(&bytes[..cut], &STORE, "heals/0"), Err(CardError::Damaged), "cut at {cut}");
    }
    bytes.push(0);
    assert_eq!(Card::decode(&bytes, &STORE, "heals/0"), Err(CardError::Damaged));
}

/// A later version keeps its version and its checksum where they are, and is refused by name.
#[test]
fn a_newer_card_is_refused() {
    let mut bytes = Card::encode(&STORE, "heals/0", kind::HEAL, b"some body");
    bytes[8] = 2;
    let crc = header_crc(&STORE, "heals/0", &bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Card::decode(&bytes, &STORE, "heals/0"), Err(CardError::Newer { found: 2, known: 1 }));
}

/// A beat that is half-written counts as unchanged.
#[test]
fn a_changed_beat_is_none() {
    let bytes = Beat { counter: 7, time: 12 }.encode();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Beat::decode(&flipped), None, "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert_eq!(Beat::decode(&bytes[..cut]), None, "cut at {cut}");
    }
}

/// The text is what the spec shows, so that the second reader finds it too.
#[test]
fn store_json_looks_as_in_the_spec() {
    let text = store_json(&STORE, 1_700_000_000_000_000);
    let start = r#"{"keepstep":"store","format":1,"store":"03030303030303030303030303030303","created":1700000000000000,"check":""#;
    assert!(text.starts_with(start), "{text}");
    let check = crc32c(b"1:03030303030303030303030303030303:1700000000000000");
    assert_eq!(text, format!("{start}{check:08x}\"}}\n"));
}

/// An editor may have moved things about; keys of later versions are passed over.
#[test]
fn store_json_may_be_laid_out_otherwise() {
    let text = store_json(&STORE, 5);
    let spaced = text.replace(':', " :\n\t").replace(',', " , ");
    assert_eq!(parse_store_json(&spaced), Ok((STORE, 5)));
    let unknown = r#"{"x":{"y":[1,-2.5e3,{"z":[]},"\u00e4\ud83e\uddc0\n",true,null,{}]},"#;
    assert_eq!(parse_store_json(&text.replacen('{', unknown, 1)), Ok((STORE, 5)));
    let escaped = text.replace("\"store\":", "\"\\u0073tore\":");
    assert_eq!(parse_store_json(&escaped), Ok((STORE, 5)));
}

/// No flip of a bit makes another store of it, or a newer version.
#[test]
fn a_changed_store_json_is_damaged_or_says_the_same() {
    let text = store_json(&STORE, 1_234_567);
    for bit in 0..text.len() * 8 {
        let mut flipped = text.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(flipped) = String::from_utf8(flipped) else { continue };
        match parse_store_json(&flipped) {
            Ok(found) => assert_eq!(found, (STORE, 1_234_567), "bit {bit}: {flipped}"),
            Err(error) => assert!(matches!(error, StoreJsonError::Damaged(_)), "bit {bit}: {error}"),
        }
    }
    // All but the new line at its end is needed.
    for cut in 0..text.len() - 1 {
        assert!(parse_store_json(&text[..cut]).is_err(), "cut at {cut}");
    }
}

/// A later format is refused by name; a nesting without end is refused without one.
#[test]
fn newer_and_endless_store_json_are_refused() {
    let newer = store_json(&STORE, 5).replace("\"format\":1", "\"format\":2");
    let old = format!("{:08x}", crc32c(format!("1:{STORE}:5").as_bytes()));
    let new = format!("{:08x}", crc32c(format!("2:{STORE}:5").as_bytes()));
    assert_eq!(
        parse_store_json(&newer.replace(&old, &new)),
        Err(StoreJsonError::Newer { found: 2, known: 1 })
    );
    assert!(matches!(parse_store_json(&newer), Err(StoreJsonError::Damaged(_))));
    let twice = store_json(&STORE, 5).replacen('{', "{\"format\":1,", 1);
    assert!(matches!(parse_store_json(&twice), Err(StoreJsonError::Damaged(_))));
    for deep in ["[", "{\"x\":"] {
        let text = format!("{{\"x\":{}", deep.repeat(100_000));
        assert!(matches!(parse_store_json(&text), Err(StoreJsonError::Damaged(_))));
    }
}
