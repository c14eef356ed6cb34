//! Ids: 16 bytes that every machine computes in the same way from names.
//!
//! Texts are length-prefixed and numbers have a fixed size, so two different names never hash the same bytes.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The id of a store, a writer, a run, an episode, a group or a stream; 32 lower-case hex digits on screens and in
/// paths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// All zero: none. The writer of a segment in `grouped/`, and the id of the log's own entry in a footer.
    pub const NONE: Id = Id([0; 16]);
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not an id: expected 32 lower-case hex digits")]
pub struct NotAnId;

impl FromStr for Id {
    type Err = NotAnId;

    /// Strict, since an id in a path must have one spelling.
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NotAnId),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 16 || !rest.is_empty() {
            return Err(NotAnId);
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(pairs) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Id(id))
    }
}

/// The folder of a run, from its name.
pub fn run_folder(name: &str) -> Id {
    Name::new("keepstep run 1").text(name).id()
}

/// An episode, from the id of its run's generation and its name there.
pub fn episode(generation_id: &Id, task: &str, iteration: i64, sample: i64) -> Id {
    let name = Name::new("keepstep episode 1").bytes(&generation_id.0);
    name.bytes(b"s").text(task).bytes(b"i").number(iteration).bytes(b"n").number(sample).id()
}

/// An episode without a name: `nonce` is random, so it is unique.
pub fn unnamed_episode(generation_id: &Id, nonce: &[u8; 16]) -> Id {
    Name::new("keepstep episode 1").bytes(&generation_id.0).bytes(b"u").bytes(nonce).id()
}

/// The samples of one task and iteration.
pub fn group(generation_id: &Id, task: &str, iteration: i64) -> Id {
    let name = Name::new("keepstep group 1").bytes(&generation_id.0);
    name.bytes(b"s").text(task).bytes(b"i").number(iteration).id()
}

/// A stream, from the id of its run's generation and its name there.
pub fn stream(generation_id: &Id, name: &str) -> Id {
    Name::new("keepstep stream 1").bytes(&generation_id.0).bytes(b"s").text(name).id()
}

/// The bytes of a name on their way into the hash.
struct Name(blake3::Hasher);

impl Name {
    fn new(what: &str) -> Self {
        Self(blake3::Hasher::new()).bytes(what.as_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    fn number(self, number: i64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn id(self) -> Id {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        Id(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION_ID: Id = Id([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    /// These stand in `docs/internals/format.md` too: should one change, no machine finds its episodes again.
    #[test]
    fn names_hash_to_the_vectors_of_the_spec() {
        let vectors = [
            (run_folder("shop-agent"), "e458a7e05bc73b22c5442f04e481ddc0"),
            (run_folder(""), "8ef9ee43141a262c5aafb84a2516aaa3"),
            (episode(&GENERATION_ID, "shop-17", 0, 0), "9c9e99665e4723995f7516c173a7aac8"),
            (episode(&GENERATION_ID, "shop-17", 3, -1), "bdb6a8eada97ec69cb478a5847fc4986"),
            (episode(&GENERATION_ID, "Käse/🧀", i64::MAX, i64::MIN), "9754a0dadc1e4038dba58fe6e2e4d60e"),
            (unnamed_episode(&GENERATION_ID, &[0xff; 16]), "4da57d63b8c1532652dd293638ed5372"),
            (group(&GENERATION_ID, "shop-17", 3), "e844d90db48cd487dbd6910b0daa9467"),
            (stream(&GENERATION_ID, "tokens"), "426370e136ea99b698082156d2268b7f"),
        ];
        let found: Vec<String> = vectors.iter().map(|(id, _)| id.to_string()).collect();
        let known: Vec<&str> = vectors.iter().map(|(_, hex)| *hex).collect();
        assert_eq!(found, known);
    }

    /// "a", 1 and "a1" must not meet, nor a named and an unnamed episode.
    #[test]
    fn different_names_have_different_ids() {
        let ids = [
            episode(&GENERATION_ID, "a", 1, 2),
            episode(&GENERATION_ID, "a", 2, 1),
            episode(&GENERATION_ID, "a1", 0, 2),
            episode(&Id::NONE, "a", 1, 2),
            group(&GENERATION_ID, "a", 1),
            stream(&GENERATION_ID, "a"),
            run_folder("a"),
            unnamed_episode(&GENERATION_ID, &[0; 16]),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    /// An id has one spelling, so that it can be a path.
    #[test]
    fn ids_are_read_back_and_nothing_else_is() {
        assert_eq!(GENERATION_ID.to_string(), "000102030405060708090a0b0c0d0e0f");
        assert_eq!(GENERATION_ID.to_string().parse(), Ok(GENERATION_ID));
        assert_eq!(format!("{GENERATION_ID:?}"), GENERATION_ID.to_string());
        let wrong = [
            "",
            "0",
            "000102030405060708090a0b0c0d0e0",
            "000102030405060708090a0b0c0d0e0f0",
            "000102030405060708090A0B0C0D0E0F",
            "000102030405060708090a0b0c0d0e0g",
            "+00102030405060708090a0b0c0d0e0f",
            "ä00102030405060708090a0b0c0d0e0",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Id>(), Err(NotAnId), "{text:?}");
        }
    }
}
