//! A frame is read back as it was written, where it was written, or not at all.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SALT: u64 = 0x5eed_0000_0000_0001;

fn spec(kind: Kind) -> FrameSpec<'static> {
    FrameSpec { kind, flags: Flags::NONE, slot: 7, seq: 11, synced_to: None, head: &[] }
}

fn put(offset: u64, spec: &FrameSpec<'_>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, SALT, offset, spec, body, crc32c(body));
    out
}

/// Changes a header and makes its checksum hold again, as another program would have written it.
fn rewritten(frame: &[u8], offset: u64, body_at: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = frame.to_vec();
    change(&mut out);
    let fixed: [u8; 20] = out[..20].try_into().unwrap();
    let crc = head_crc(SALT, offset, &fixed, &out[FRAME_FIXED_BYTES..body_at]);
    out[20..24].copy_from_slice(&crc.to_le_bytes());
    out
}

/// A frame with every part: it commits, and has a head.
fn full_frame() -> Vec<u8> {
    let spec = FrameSpec { flags: Flags::ZSTD, synced_to: Some(256), head: b"a head", ..spec(Kind::Step) };
    put(512, &spec, b"thirteen byte")
}

const FULL_BODY_AT: usize = 24 + 8 + 4 + 6;

proptest! {
    /// What is put is parsed, at its offset with its salt, and nowhere else.
    #[test]
    fn frames_come_back(
        kind in 0..Kind::ALL.len(), packed: bool, slot: u32, seq: u32, body in vec(any::<u8>(), 0..100),
        head in vec(any::<u8>(), 0..50), commits: bool, at in 16u64..1 << 37, before in 0usize..5, salt: u64,
    ) {
        let kind = Kind::ALL[kind];
        let (commits, plain) = match kind {
            Kind::Chunk => (false, true),
            Kind::Commit => (true, true),
            _ => (commits, false),
        };
        let head = if plain { &[][..] } else { &head[..] };
        let flags = if packed && !plain { Flags::ZSTD } else { Flags::NONE };
        let offset = at * 8;
        let synced_to = commits.then(|| (offset / 2).next_multiple_of(8).max(128));
        let spec = FrameSpec { kind, flags, slot, seq, synced_to, head };
        let mut data = vec![0xaa; before * 8];
        put_frame(&mut data, salt, offset, &spec, &body, crc32c(&body));
        let (at, base) = (before * 8, offset - before as u64 * 8);
        prop_assert_eq!(data.len() - at, frame_bytes(head.len(), body.len(), commits));

        let Parsed::Whole(frame) = parse(&data, at, base, salt) else { panic!("{spec:?}") };
        let header = frame.header;
        prop_assert_eq!((header.kind, header.slot, header.seq), (kind as u8, slot, seq));
        prop_assert_eq!((header.synced_to, header.flags.has(Flags::ZSTD)), (synced_to, flags == Flags::ZSTD));
        prop_assert_eq!((frame.head, frame.body), (head, &body[..]));
        prop_assert_eq!(header.bytes(), data.len() - at);

        prop_assert_eq!(parse(&data, at, base, salt ^ 1), Parsed::Bad);
        prop_assert_eq!(parse(&data, at, base + 8, salt), Parsed::Bad);
        prop_assert_eq!(parse(&data, at, base + 1, salt), Parsed::Bad);
    }

    /// Any bytes are parsed without a panic, and are no frame.
    #[test]
    fn any_bytes_are_no_frame(data in vec(any::<u8>(), 0..120), at in 0usize..140, offset: u32) {
        let found = parse(&data, at, u64::from(offset), SALT);
        prop_assert!(matches!(found, Parsed::Bad | Parsed::Short { .. }), "{:?}", found);
    }

    /// A head is read back, and from no part of it.
    #[test]
    fn heads_come_back_whole_or_not_at_all(
        segment in 0u64..1 << 40, has_dict: bool,
        refs in vec((any::<u64>(), 16u64..1 << 40, 0u64..1 << 40, any::<u32>(), any::<u64>(), any::<[u8; 16]>()), 0..6),
    ) {
        let reference = |(back, offset, inner, base, take, hash): (u64, u64, _, _, _, _)| {
            let place = Place { segment: segment - back % (segment + 1), offset: offset * 8, inner, base };
            Reference { place, take, hash }
        };
        let refs: Vec<Reference> = refs.into_iter().map(reference).collect();
        let dict = has_dict.then_some((segment / 2, 1024));
        let mut head = Vec::new();
        put_head(&mut head, segment, dict, &refs);
        prop_assert_eq!(read_head(&head, segment, has_dict), Ok((dict, refs)));
        for cut in 0..head.len() {
            prop_assert!(read_head(&head[..cut], segment, has_dict).is_err(), "cut at {}", cut);
        }
        head.push(0);
        prop_assert!(read_head(&head, segment, has_dict).is_err());
    }

    /// Any bytes are read as a head without a panic.
    #[test]
    fn any_bytes_are_read_as_a_head_without_panic(head in vec(any::<u8>(), 0..100), segment: u64, has_dict: bool) {
        let _ = read_head(&head, segment, has_dict);
    }
}

/// The numbers of the kinds are those of the spec, for ever.
#[test]
fn kinds_have_their_numbers() {
    let numbers: Vec<u8> = Kind::ALL.iter().map(|&kind| kind as u8).collect();
    let known: Vec<u8> = (0x01..=0x08).chain(0x10..=0x1A).collect();
    assert_eq!(numbers, known);
    for number in 0..=255u8 {
        assert_eq!(Kind::from_u8(number).map(|kind| kind as u8), known.contains(&number).then_some(number));
    }
}

/// The bytes of one frame, written down once, so that no change of the format goes unseen.
#[test]
fn a_frame_has_the_bytes_of_the_spec() {
    let bytes = full_frame();
    let crc = |parts: &[&[u8]]| parts.iter().fold(0, |crc, part| crc32c_append(crc, part)).to_le_bytes();
    let mut expected = vec![0x12, 1 | 4 | 8, 0, 0, 13, 0, 0, 0, 7, 0, 0, 0, 11, 0, 0, 0];
    expected.extend_from_slice(&crc(&[b"thirteen byte"]));
    let optional = [&256u64.to_le_bytes()[..], &6u32.to_le_bytes(), b"a head"].concat();
    let head_crc = crc(&[&SALT.to_le_bytes(), &512u64.to_le_bytes(), &expected, &optional]);
    expected.extend_from_slice(&head_crc);
    expected.extend_from_slice(&optional);
    expected.extend_from_slice(b"thirteen byte\0");
    assert_eq!(bytes, expected);
}

/// Whichever bit flips, header, body or padding: the frame is never whole, and its header is only believed if it holds.
#[test]
fn a_flipped_bit_is_found() {
    let bytes = full_frame();
    let Parsed::Whole(frame) = parse(&bytes, 0, 512, SALT) else { panic!() };
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match parse(&flipped, 0, 512, SALT) {
            Parsed::BodyDamaged(header, total) if bit / 8 >= FULL_BODY_AT => {
                assert_eq!((header, total), (frame.header, bytes.len()), "bit {bit}");
            }
            Parsed::Bad | Parsed::Short { .. } if bit / 8 < FULL_BODY_AT => {}
            other => panic!("bit {bit}: {other:?}"),
        }
    }
}

/// Wherever the bytes end: a header that is not all there says nothing, one that is says how much is missing.
#[test]
fn a_cut_frame_says_how_much_it_needs() {
    let bytes = full_frame();
    for cut in 0..bytes.len() {
        match parse(&bytes[..cut], 0, 512, SALT) {
            Parsed::Short { needs } => assert!(cut < needs && needs <= FULL_BODY_AT, "cut at {cut}: {needs}"),
            Parsed::Cut(header, total) => {
                assert!(cut >= FULL_BODY_AT && total == bytes.len(), "cut at {cut}");
                assert_eq!((header.slot, header.seq), (7, 11));
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

/// A frame that this version does not understand is no damage: it is refused by name.
#[test]
fn what_only_a_newer_version_understands_is_told_apart() {
    let bytes = full_frame();
    let changes: [(usize, u8); 5] = [(0, 0x09), (0, 0x7f), (1, 1 | 4 | 8 | 32), (2, 1), (3, 1)];
    for (at, value) in changes {
        let newer = rewritten(&bytes, 512, FULL_BODY_AT, |out| out[at] = value);
        let found = parse(&newer, 0, 512, SALT);
        assert_eq!(found, Parsed::Newer { kind: newer[0], bytes: bytes.len() }, "byte {at}");
    }
    let skippable = rewritten(&bytes, 512, FULL_BODY_AT, |out| out[0] = 0x80);
    assert!(matches!(parse(&skippable, 0, 512, SALT), Parsed::Whole(frame) if frame.header.kind == 0x80));
}

/// A checksum that holds does not make up for a frame that the format does not have.
#[test]
fn what_no_writer_may_write_is_no_frame() {
    let full = full_frame();
    let plain = put(512, &spec(Kind::Step), b"body");
    let cases: [(&str, &[u8], usize, usize, u8); 8] = [
        ("kind 0", &plain, 24, 0, 0),
        ("a dictionary without a head", &plain, 24, 1, 8 | 16),
        ("a dictionary without compression", &full, FULL_BODY_AT, 1, 1 | 4 | 16),
        ("a chunked record that commits", &full, FULL_BODY_AT, 1, 1 | 2 | 4),
        ("a chunk with a head", &full, FULL_BODY_AT, 0, Kind::Chunk as u8),
        ("a COMMIT that does not commit", &plain, 24, 0, Kind::Commit as u8),
        ("synced beyond itself", &full, FULL_BODY_AT, 25, 3),
        ("synced to no frame", &full, FULL_BODY_AT, 24, 1),
    ];
    for (name, frame, body_at, at, value) in cases {
        let wrong = rewritten(frame, 512, body_at, |out| out[at] = value);
        assert_eq!(parse(&wrong, 0, 512, SALT), Parsed::Bad, "{name}");
    }
    let too_long = rewritten(&plain, 512, 24, |out| out[4..8].copy_from_slice(&(1u32 << 21).to_le_bytes()));
    assert_eq!(parse(&too_long, 0, 512, SALT), Parsed::Bad);
    let no_head = rewritten(&full, 512, 36, |out| out[32..36].fill(0));
    assert_eq!(parse(&no_head, 0, 512, SALT), Parsed::Bad);
}

/// References point back, to where records can start; everything else is refused.
#[test]
fn references_into_nowhere_are_refused() {
    let put_reference = |back: u64, offset: u64, inner: u64, base: u64| {
        let mut head = vec![1];
        for number in [back, offset, inner, base, 0] {
            crate::bytes::put_varint(&mut head, number);
        }
        head.extend_from_slice(&[0; 16]);
        read_head(&head, 5, false)
    };
    assert!(put_reference(5, 16, 0, 0).is_ok());
    assert!(put_reference(6, 16, 0, 0).is_err(), "before the first segment");
    assert!(put_reference(0, 15, 0, 0).is_err(), "inside the header");
    assert!(put_reference(0, u64::MAX / 4, 0, 0).is_err(), "beyond 64 bits");
    assert!(put_reference(0, 16, (1 << 40) + 1, 0).is_err(), "behind the end of any record");
    assert!(put_reference(0, 16, 0, 1 << 32).is_err(), "base beyond 32 bits");
}

fn crcs(body: &[u8]) -> Vec<u32> {
    if body.is_empty() { vec![crc32c(&[])] } else { body.chunks(FRAME_BODY_MAX).map(crc32c).collect() }
}

/// A record of any length is joined again from its frames.
#[test]
fn records_of_any_length_come_back() {
    for length in [0, 1, FRAME_BODY_MAX - 1, FRAME_BODY_MAX, FRAME_BODY_MAX + 1, 3 * FRAME_BODY_MAX, 5 << 19]
    {
        let body: Vec<u8> = (0..length).map(|i| (i / 7) as u8).collect();
        let spec = FrameSpec { head: b"h", ..spec(Kind::Step) };
        let mut data = vec![0; 16];
        put_record(&mut data, SALT, 128, &spec, &body, &crcs(&body));
        assert_eq!(data.len() - 16, record_bytes(1, length, false));
        let joined = join(&data, 16, 112, SALT).unwrap();
        assert_eq!(joined.body, body);
        assert_eq!((joined.head, joined.bytes), (&b"h"[..], data.len() - 16));
    }
}

/// A chunk that is damaged, missing, or another record's makes the record damaged; one that is cut off is waited for.
#[test]
fn a_record_without_one_of_its_chunks_is_damaged() {
    let body = vec![5; 2 * FRAME_BODY_MAX + 10];
    let mut data = Vec::new();
    put_record(&mut data, SALT, 128, &spec(Kind::Step), &body, &crcs(&body));
    let full = frame_bytes(0, FRAME_BODY_MAX, false);
    let Parsed::Whole(first) = parse(&data, 0, 128, SALT) else { panic!() };

    for at in [full, full + 30, 2 * full, data.len() - 1] {
        let mut flipped = data.clone();
        flipped[at] ^= 1;
        assert_eq!(join(&flipped, 0, 128, SALT), Err(NotJoined::Damaged(first.header)), "flip at {at}");
    }
    for cut in [full, full + 10, 2 * full - 1, 2 * full + 24, data.len() - 1] {
        let found = join(&data[..cut], 0, 128, SALT);
        let Err(NotJoined::Short { header, needs }) = found else { panic!("cut at {cut}: {found:?}") };
        assert!(header == Some(first.header) && needs > cut && needs <= data.len(), "cut at {cut}: {needs}");
    }
    let mut foreign = data[..full].to_vec();
    let chunk = FrameSpec { kind: Kind::Chunk, seq: 12, ..spec(Kind::Step) };
    put_frame(&mut foreign, SALT, 128 + full as u64, &chunk, b"x", crc32c(b"x"));
    assert_eq!(join(&foreign, 0, 128, SALT), Err(NotJoined::Damaged(first.header)));
    assert_eq!(join(&data, full, 128, SALT), Err(NotJoined::Bad), "a record does not start with a chunk");
}
