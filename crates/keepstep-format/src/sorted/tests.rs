use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn header() -> SortedHeader {
    SortedHeader {
        kind: sorted_kind::PACK,
        store: Id([7; 16]),
        number: 3,
        created: 5,
        salt: 0x1234_5678_9abc,
    }
}

fn written(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut writer = SortedWriter::new(&header());
    let mut out = Vec::new();
    for (key, value) in entries {
        writer.push(key, value);
        out.extend(writer.take());
    }
    out.extend(writer.finish());
    out
}

/// A reader over bytes, as the engine is one over a file.
struct Reader<'f> {
    file: &'f [u8],
    salt: u64,
    trailer: SortedTrailer,
}

impl<'f> Reader<'f> {
    fn open(file: &'f [u8]) -> Result<Self, SortedError> {
        let salt = SortedHeader::decode(file)?.salt;
        let at = file.len().checked_sub(SORTED_TRAILER_BYTES).ok_or(SortedError::Damaged)?;
        let trailer = SortedTrailer::decode(&file[at..], salt, file.len() as u64)?;
        Ok(Self { file, salt, trailer })
    }

    fn block(&self, place: BlockPlace) -> Result<SortedBlock, Malformed> {
        assert!(place.is_readable(), "{place:?}");
        let end = place.offset as usize + place.bytes as usize;
        let bytes = self.file.get(place.offset as usize..end);
        let bytes = bytes.ok_or(Malformed { what: "a block is missing", at: 0 })?;
        SortedBlock::decode(bytes, self.salt, place)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let mut block = self.block(self.trailer.root)?;
        while block.is_index() {
            match block.below(key)? {
                Some(place) => block = self.block(place)?,
                None => return Ok(None),
            }
        }
        Ok(block.get(key).map(<[u8]>::to_vec))
    }

    fn from(&self, key: &[u8]) -> Result<Vec<super::block::KeyValue>, Malformed> {
        let mut out = Vec::new();
        let mut places = vec![self.trailer.root];
        while let Some(place) = places.pop() {
            let block = self.block(place)?;
            if block.is_index() {
                let below: Result<Vec<_>, _> = block.all_below(key).collect();
                places.extend(below?.into_iter().rev());
            } else {
                out.extend(block.entries_from(key).map(|(key, value)| (key.to_vec(), value.to_vec())));
            }
        }
        Ok(out)
    }
}

fn entries() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    // Few letters, so that keys share their beginnings; long values, so that there are several blocks and levels.
    let key = vec(0u8..4, 0..12);
    btree_map(key, vec(any::<u8>(), 0..3000), 0..120)
}

proptest! {
    /// Every entry is found by its key, what is not there is not found, and any range comes in order.
    #[test]
    fn entries_come_back(entries in entries(), wanted in vec(0u8..4, 0..12)) {
        let file = written(&entries);
        let reader = Reader::open(&file).expect("is whole");
        prop_assert_eq!(reader.trailer.entries, entries.len() as u64);
        for (key, value) in &entries {
            prop_assert_eq!(reader.get(key), Ok(Some(value.clone())));
        }
        prop_assert_eq!(reader.get(&wanted), Ok(entries.get(&wanted).cloned()));
        let range: Vec<_> = entries.range(wanted.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
        prop_assert_eq!(reader.from(&wanted), Ok(range));
    }

    /// Any bytes in the place of a block, a header or a trailer are met calmly.
    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..200), level in 0u8..10, salt: u64) {
        let _ = SortedHeader::decode(&bytes);
        let _ = SortedTrailer::decode(&bytes, salt, bytes.len() as u64);
        let place = BlockPlace { offset: 64, bytes: bytes.len() as u32, level };
        let _ = SortedBlock::decode(&bytes, salt, place);
    }
}

fn many(count: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let path = |number: u32| format!("claims/{:02x}/{number:032x}.0.claim", number % 256).into_bytes();
    (0..count).map(|number| (path(number), number.to_le_bytes().repeat(20))).collect()
}

/// A flipped bit is found, or is in no block that is asked for: never another value.
#[test]
fn a_flipped_bit_never_gives_another_value() {
    let entries = many(600);
    let file = written(&entries);
    for at in (0..file.len()).step_by(7) {
        let mut wounded = file.clone();
        wounded[at] ^= 1 << (at % 8);
        let Ok(reader) = Reader::open(&wounded) else { continue };
        for (key, value) in entries.iter().step_by(37) {
            if let Ok(found) = reader.get(key) {
                assert_eq!(found.as_ref(), Some(value), "byte {at} flipped");
            }
        }
    }
}

/// A file that was cut anywhere is none.
#[test]
fn a_file_that_is_cut_is_refused() {
    let file = written(&many(300));
    for length in (0..file.len()).step_by(5) {
        assert!(Reader::open(&file[..length]).is_err(), "cut to {length} bytes");
    }
}

/// A block at another place of the same file, or of another file, does not validate.
#[test]
fn a_block_is_valid_in_one_place_only() {
    let file = written(&many(3));
    let reader = Reader::open(&file).expect("is whole");
    let root = reader.trailer.root;
    let bytes = &file[root.offset as usize..][..root.bytes as usize];
    assert!(SortedBlock::decode(bytes, reader.salt, root).is_ok());
    assert!(SortedBlock::decode(bytes, reader.salt, BlockPlace { offset: root.offset + 8, ..root }).is_err());
    assert!(SortedBlock::decode(bytes, reader.salt ^ 1, root).is_err());
}

/// A key is found by few blocks, however many there are: a hundred times as many entries cost one or two levels more.
#[test]
fn a_key_is_found_by_few_blocks() {
    let level_of = |count: u32| {
        let file = written(&many(count));
        Reader::open(&file).expect("is whole").trailer.root.level
    };
    assert!(!BlockPlace { offset: 64, bytes: u32::MAX, level: 0 }.is_readable());
    let (few, more, most) = (level_of(50), level_of(5_000), level_of(200_000));
    assert!((few, more) == (0, 1) && most == 2, "{few}, {more}, {most} levels");
}

/// What no writer writes is refused: entries out of order, an index that names itself, unknown flags.
#[test]
fn what_no_writer_writes_is_refused() {
    assert!(SortedWriter::takes(&[0; KEY_BYTES_MAX], &[]));
    assert!(!SortedWriter::takes(&[0; KEY_BYTES_MAX + 1], &[]));
    assert!(!SortedWriter::takes(&[], &vec![0; VALUE_BYTES_MAX + 1]));
    let mut filling = super::block::Filling::default();
    filling.push(b"a", &BlockPlace { offset: 64, bytes: 40, level: 0 }.encode());
    let bytes = filling.encode(1, 64, 1);
    let place = BlockPlace { offset: 64, bytes: bytes.len() as u32, level: 1 };
    let block = SortedBlock::decode(&bytes, 1, place).expect("is a block");
    assert!(block.below(b"a").is_err(), "it names itself");
    let mut filling = super::block::Filling::default();
    filling.push(b"b", b"");
    filling.push(b"a", b"");
    let bytes = filling.encode(1, 64, 0);
    let place = BlockPlace { offset: 64, bytes: bytes.len() as u32, level: 0 };
    assert!(SortedBlock::decode(&bytes, 1, place).is_err(), "keys are out of order");
}
