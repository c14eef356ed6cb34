//! The parts of a sorted file are refused, or read; what an index names is before it and one level below.
#![no_main]

use keepstep_format::sorted::{BlockPlace, SortedBlock, SortedHeader, SortedTrailer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, u32, u8, &[u8], &[u8])| {
    let (salt, offset, level, key, data) = input;
    if let Ok(header) = SortedHeader::decode(data) {
        assert_eq!(header.encode()[..], data[..64]);
    }
    if let Ok(trailer) = SortedTrailer::decode(data, salt, u64::from(offset)) {
        assert_eq!(trailer.encode(salt)[..], *data);
    }
    // The checksum is made to fit: otherwise nothing behind it would be tried.
    let place = BlockPlace { offset: u64::from(offset), bytes: data.len() as u32, level: level % 4 };
    let mut data = data.to_vec();
    if data.len() >= 16 {
        let length = (data.len() - 16) as u32;
        data[..4].copy_from_slice(&length.to_le_bytes());
        data[5] = place.level;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &place.offset.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &data[..12]), &data[16..]);
        data[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(block) = SortedBlock::decode(&data, salt, place) else { return };
    let _ = block.get(key);
    for below in block.all_below(key).chain(block.below(key).transpose()) {
        let Ok(below) = below else { continue };
        assert!(below.offset + u64::from(below.bytes) <= place.offset && below.level + 1 == place.level);
    }
    let mut last = None;
    for (key, _) in block.entries_from(&[]) {
        assert!(last.is_none_or(|last| last < key));
        last = Some(key);
    }
});
