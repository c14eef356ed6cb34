//! What an episode is called within its run.

use std::fmt;

use crate::error::{Error, Result};

/// The name of an episode within its run.
///
/// ```
/// use keepstep::EpisodeName;
///
/// let name = EpisodeName::task("shop-17").iteration(2).sample(5);
/// assert_eq!((name.task.as_str(), name.iteration, name.sample), ("shop-17", 2, 5));
/// assert_eq!(name.to_string(), "shop-17#2.5");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
#[non_exhaustive]
pub struct EpisodeName {
    /// The name of the task.
    pub task: String,
    /// Which visit of the task, from 0.
    pub iteration: i64,
    /// Which of several samples of the task, from 0.
    pub sample: i64,
}

/// `task#iteration.sample`, as people read it. [`crate::refs::reference`] gives what is found again.
impl fmt::Display for EpisodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}.{}", self.task, self.iteration, self.sample)
    }
}

impl EpisodeName {
    /// The first sample of the first iteration.
    pub fn task(task: impl Into<String>) -> Self {
        Self { task: task.into(), iteration: 0, sample: 0 }
    }

    /// Sets which visit of the task.
    pub fn iteration(mut self, iteration: i64) -> Self {
        self.iteration = iteration;
        self
    }

    /// Sets which of several samples of the task.
    pub fn sample(mut self, sample: i64) -> Self {
        self.sample = sample;
        self
    }

    /// An error if a number is negative. Such episodes of older versions stay readable.
    pub(in crate::store) fn check(&self) -> Result<()> {
        check_number("iteration", self.iteration)?;
        check_number("sample", self.sample)
    }
}

/// Iterations and samples are counted from 0.
pub(in crate::store) fn check_number(field: &str, number: i64) -> Result<()> {
    if number >= 0 {
        return Ok(());
    }
    let (field, value) = (field.to_owned(), format!("is {number}"));
    Err(Error::BadInput { field, value, fix: "give 0 or more".to_owned() })
}
