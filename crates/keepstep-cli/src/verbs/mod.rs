//! One file per verb.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod demo_recorder;
pub(crate) mod doctor;
pub(crate) mod torture;
