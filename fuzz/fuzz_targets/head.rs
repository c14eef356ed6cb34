//! A head is refused, or read; what is read is written again as the same bytes.
#![no_main]

use keepstep_format::frame::{put_head, read_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, bool, &[u8])| {
    let (this_segment, has_dict, head) = input;
    let Ok((dict, refs)) = read_head(head, this_segment, has_dict) else { return };
    assert_eq!(dict.is_some(), has_dict);
    let mut again = Vec::new();
    put_head(&mut again, this_segment, dict, &refs);
    assert_eq!(again, head);
});
