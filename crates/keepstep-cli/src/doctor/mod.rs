//! The parts of `keepstep doctor`: what is tried on a disk, and where that disk is mounted.

pub(crate) mod mount;
pub(crate) mod probes;
