//! A compressed body is refused, or opened within the length that it states; what is compressed comes back.
#![no_main]

use keepstep_format::record::{Dictionary, compress, decompress};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8], bool)| {
    let (stored, dictionary, has_dictionary) = input;
    let dictionary = has_dictionary.then(|| Dictionary::new(dictionary.to_vec()));
    if let Ok(body) = decompress(stored, dictionary.as_ref()) {
        let mut cursor = keepstep_format::bytes::Cursor::new(stored);
        assert_eq!(cursor.varint(), Ok(body.len() as u64));
    }
    if let Some(compressed) = compress(stored, dictionary.as_ref()) {
        assert!(compressed.len() < stored.len());
        assert_eq!(decompress(&compressed, dictionary.as_ref()).as_deref(), Ok(stored));
    }
});
