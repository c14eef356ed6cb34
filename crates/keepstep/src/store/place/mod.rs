//! Where a store is: its address, its identity, what its disk gives, and who may write.

pub(in crate::store) mod address;
pub(in crate::store) mod identity;
pub(in crate::store) mod level;
pub(in crate::store) mod writable;
