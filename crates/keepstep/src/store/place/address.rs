//! Refuses addresses such as `s3://bucket/runs`, which could be taken for a directory.
//!
//! In a folder called `s3:` the records would look safe, until the machine is lost.

use std::path::Path;

use crate::error::{Error, Result};

/// The scheme of an address: what stands before `:/`. `Path` in Python makes one slash of two.
fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(":/")?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

/// Refuses an address: this version records to directories only.
pub fn refuse_address(path: impl AsRef<Path>) -> Result<()> {
    let text = path.as_ref().to_string_lossy();
    let Some(scheme) = scheme_of(&text) else { return Ok(()) };
    let fix = match scheme.eq_ignore_ascii_case("file") {
        true => "give the path alone, without the scheme",
        false => "buckets and servers are not supported yet: give a local directory",
    };
    Err(Error::BadInput {
        field: "store".to_owned(),
        value: format!("is the address {text:?}"),
        fix: fix.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with a scheme is an address; a text that begins like a path is a path.
    #[test]
    fn an_address_is_told_from_a_path() {
        for address in [
            "s3://bucket/x",
            "s3:/bucket/x",
            "S3://b",
            "gs://b",
            "az+x.y-z://b",
            "file:///tmp/x",
            "http://h/",
        ] {
            let error = refuse_address(address).expect_err(address).to_string();
            assert!(error.contains(address), "{error}");
        }
        for path in ["", "runs", "./s3:/x", "/s3://x", "a/s3://x", "s3:", "s3:x", "C:/x", "9p://x", "a b://x"]
        {
            assert!(refuse_address(path).is_ok(), "{path}");
        }
    }
}
