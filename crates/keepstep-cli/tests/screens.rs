//! The help screens and the first lines of trouble, word for word.
//!
//! After a wanted change: `TRYCMD=overwrite cargo test -p keepstep-cli --test screens`, and read the difference.

#[test]
fn screens_are_as_they_were_read() {
    let cases = trycmd::TestCases::new();
    cases.env("COLUMNS", "100").env("NO_COLOR", "1").env("KEEPSTEP_STORE", "");
    cases.case("tests/screens/*.trycmd");
}
