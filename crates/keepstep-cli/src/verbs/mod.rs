//! One file per verb.

pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod demo_recorder;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod export;
pub(crate) mod ls;
pub(crate) mod prune;
pub(crate) mod reap;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod tail;
pub(crate) mod torture;
pub(crate) mod verify;
