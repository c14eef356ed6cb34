//! A block is refused, or read; what is read is written again as the same bytes, and all its references point back.
#![no_main]

use keepstep_format::block::Block;
use keepstep_format::decode::{NoBodies, part_of_value, read_fields_of};
use keepstep_format::grouped;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, u64, u32, &[u8])| {
    let (offset, inner, base, data) = input;
    let offset = 128 + u64::from(offset) * 8;
    if let Ok(entries) = grouped::decode_footer(data) {
        assert_eq!(grouped::encode_footer(&entries), data);
    }
    if let Ok((writer, bind)) = grouped::read_bind(data) {
        let mut again = Vec::new();
        grouped::put_bind(&mut again, &writer, &bind);
        assert_eq!(again, data);
    }
    if let Ok(list) = grouped::read_list(data, inner % (data.len() as u64 + 1), base % 64) {
        let mut again = Vec::new();
        grouped::put_list(&mut again, list);
        assert!(data[(inner % (data.len() as u64 + 1)) as usize..].starts_with(&again));
    }
    let _ = grouped::read_origins(data, inner % (data.len() as u64 + 1), base % 64);
    let Ok(block) = Block::decode(data.to_vec(), 3, offset) else { return };
    assert_eq!(block.encode(offset), data);
    for record in &block.records {
        let _ = read_fields_of(&block.body, &record.part, &mut NoBodies);
    }
    if let Ok(part) = part_of_value(&block.body, inner, base) {
        assert!(part.bytes.end <= block.body.raw.len());
        assert!(part.references.end <= block.body.references.len());
    }
});
