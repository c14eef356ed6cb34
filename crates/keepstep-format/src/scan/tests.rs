//! Whatever happens to the bytes of a segment, what is read is what was written, and what is not read is reported.

mod any_damage;
mod following;
mod log;
mod meaning;
