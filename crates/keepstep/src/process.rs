//! Binds a handle to the process that made it.
//!
//! A forked child has copies of all locks, and none of the threads that may hold them. So a handle checks its process
//! before it touches a lock that may be locked for ever, and refuses.

use crate::error::{Error, Result};

/// The process that something was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process.
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// An error in a forked child of that process.
    pub(crate) fn check(self) -> Result<()> {
        let (parent, child) = (self.0, std::process::id());
        if child == parent { Ok(()) } else { Err(Error::Forked { parent, child }) }
    }

    /// False in a forked child of that process.
    pub(crate) fn is_this(self) -> bool {
        self.check().is_ok()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::this()
    }
}
