//! The bodies of COMMIT and BIND are refused, or read; what is read is written again as the same bytes.
#![no_main]

use keepstep_format::commit::{Bind, put_commit_body, read_commit_body};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(listed) = read_commit_body(body) {
        let mut again = Vec::new();
        put_commit_body(&mut again, &listed);
        // A count of 0 and no body say the same.
        assert!(again == body || (listed.is_empty() && body == [0]));
    }
    if let Ok(bind) = Bind::decode(body) {
        assert_eq!(bind.encode(), body);
    }
});
