//! A footer and its lists are refused, or read; what is read is written again as the same bytes.
#![no_main]

use keepstep_format::footer::{Footer, put_index, put_list, read_index, read_list};
use keepstep_format::segment::Trailer;
use libfuzzer_sys::fuzz_target;

const SALT: u64 = 7;

fuzz_target!(|input: (u64, u32, Vec<u8>, &[u8])| {
    let (position, count, lists, body) = input;
    for position in [position, position % (lists.len() as u64 + 1)] {
        if let Ok(list) = read_list(&lists, position, count % 64) {
            let mut again = Vec::new();
            put_list(&mut again, list);
            assert!(lists[position as usize..].starts_with(&again));
        }
    }
    let Ok(footer) = Footer::decode(body) else { return };
    assert_eq!(footer.encode(), body);

    // The whole index comes back if its entries point into the lists, and is refused else.
    let mut tail = Vec::new();
    put_index(&mut tail, SALT, 128, &footer, &lists);
    let trailer = Trailer::decode(&tail, 128 + tail.len() as u64, SALT).expect("just written");
    let fits = footer.entries.iter().all(|entry| entry.list_position <= lists.len() as u64);
    match read_index(&tail, &trailer, SALT) {
        Some(index) => assert!(fits && index.footer == footer && index.lists == lists),
        None => assert!(!fits),
    }
});
