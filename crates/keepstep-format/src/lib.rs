//! The bytes of a keepstep store, as `docs/internals/format.md` specifies them.
//!
//! No files, no threads, no clocks. Everything here takes bytes and returns bytes, so that it can be flipped, cut and
//! fuzzed without a disk.

pub mod block;
pub mod bytes;
pub mod card;
pub mod commit;
pub mod decode;
pub mod encode;
pub mod ending;
pub mod fields;
pub mod footer;
pub mod frame;
pub mod grouped;
pub mod hash;
pub mod ids;
pub mod kind;
pub mod record;
pub mod rehash;
pub mod scan;
pub mod segment;
pub mod sorted;
pub mod step_fields;
pub mod value;

pub use bytes::Malformed;
pub use ending::Why;
pub use ids::Id;

/// The version of the format that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;

/// The examples of the README are run as tests.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeExamples;
