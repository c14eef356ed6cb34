//! The parts of `keepstep torture`: what is recorded, the recorders, the witness outside, and the comparison.
//!
//! The witness shares nothing with the store: what a step contains follows from seed, episode and index alone, so it is
//! made anew for the comparison, and its digest is computed here, not by the format.

pub(crate) mod check;
pub(crate) mod company;
pub(crate) mod compare;
pub(crate) mod content;
mod digest;
pub(crate) mod read_back;
pub(crate) mod recorder;
pub(crate) mod witness;
