//! Tending.
