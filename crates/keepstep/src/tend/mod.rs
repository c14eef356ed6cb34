//! Looks after a whole store: finds and places all damage, says what it cost, and mends what can be mended.
//!
//! Nothing that was written is ever changed: what is mended is published beside it.

mod cards;
mod frames;
mod heal;
mod report;
mod subjects;
#[cfg(test)]
mod tests;
mod values;
mod verify;

pub use heal::{HealReport, heal};
pub use report::{Counts, Damage, Lost, Missing, Progress, Report, Torn, Wrong};
pub use verify::verify;
