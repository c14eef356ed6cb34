//! The witness outside: what recorders said that they would record, and what was then acknowledged.
//!
//! A recorder writes a line before it hands a step over and another after it was acknowledged. Each is one write of less
//! than a pipe takes at once, so a kill leaves no half of one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::str::FromStr;

use super::content::Key;

/// One line of a recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// This step is about to be handed over.
    Submits(Key, u64),
    /// It was acknowledged, and had this digest.
    Acknowledged(Key, u64, u64),
    /// The end of the episode is about to be handed over.
    Ends(Key),
    /// It was acknowledged.
    Ended(Key),
}

/// A line that no recorder writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a recorder printed an unexpected line: {0:?}")]
pub(crate) struct Garbled(String);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = |key: &Key| format!("{} {} {} {}", key.worker, key.life, key.thread, key.number);
        match self {
            Self::Submits(of, index) => write!(f, "+ {} {index}", key(of)),
            Self::Acknowledged(of, index, digest) => write!(f, "= {} {index} {digest:016x}", key(of)),
            Self::Ends(of) => write!(f, "e {}", key(of)),
            Self::Ended(of) => write!(f, "E {}", key(of)),
        }
    }
}

impl FromStr for Line {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        parse(line).ok_or_else(|| Garbled(line.to_owned()))
    }
}

fn parse(line: &str) -> Option<Line> {
    fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
        word?.parse().ok()
    }
    let mut words = line.split(' ');
    let what = words.next()?;
    let key = Key {
        worker: number(words.next())?,
        life: number(words.next())?,
        thread: number(words.next())?,
        number: number(words.next())?,
    };
    let line = match what {
        "+" => Line::Submits(key, number(words.next())?),
        "=" => {
            let index = number(words.next())?;
            Line::Acknowledged(key, index, u64::from_str_radix(words.next()?, 16).ok()?)
        }
        "e" => Line::Ends(key),
        "E" => Line::Ended(key),
        _ => return None,
    };
    words.next().is_none().then_some(line)
}

/// What is known of one episode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// So many steps may be there.
    pub(crate) submitted: u64,
    /// The digests of those that must be there.
    pub(crate) acknowledged: Vec<u64>,
    pub(crate) end_submitted: bool,
    pub(crate) end_acknowledged: bool,
}

/// What all recorders said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Witness {
    pub(crate) episodes: HashMap<Key, Seen>,
    /// Lines that made no sense: a mistake in the recorder, told with the first of them.
    pub(crate) garbled: u64,
    pub(crate) first_garbled: Option<String>,
}

impl Witness {
    /// How many steps were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.episodes.values().map(|seen| seen.acknowledged.len() as u64).sum()
    }

    /// Takes a line down.
    pub(crate) fn hear(&mut self, line: &str) {
        let understood = line.parse().ok().is_some_and(|line| self.take_down(line));
        if !understood {
            self.garbled += 1;
            self.first_garbled.get_or_insert_with(|| line.to_owned());
        }
    }

    /// Takes down all that a recorder says, until it is gone.
    pub(crate) fn hear_all(&mut self, from: impl Read) -> std::io::Result<()> {
        for line in BufReader::new(from).lines() {
            self.hear(&line?);
        }
        Ok(())
    }

    /// False if it cannot be: steps are handed over and acknowledged in order.
    fn take_down(&mut self, line: Line) -> bool {
        let (Line::Submits(key, _) | Line::Acknowledged(key, ..) | Line::Ends(key) | Line::Ended(key)) = line;
        let seen = self.episodes.entry(key).or_default();
        match line {
            // A step that failed is handed over again with the same index.
            Line::Submits(_, index) if index <= seen.submitted => {
                seen.submitted = seen.submitted.max(index + 1);
                true
            }
            Line::Acknowledged(_, index, digest)
                if index == seen.acknowledged.len() as u64 && index < seen.submitted =>
            {
                seen.acknowledged.push(digest);
                true
            }
            Line::Ends(_) => {
                seen.end_submitted = true;
                true
            }
            Line::Ended(_) if seen.end_submitted => {
                seen.end_acknowledged = true;
                true
            }
            _ => false,
        }
    }

    /// Takes over what another witness heard.
    pub(crate) fn add(&mut self, other: Witness) {
        self.episodes.extend(other.episodes);
        self.garbled += other.garbled;
        if self.first_garbled.is_none() {
            self.first_garbled = other.first_garbled;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { worker: 1, life: 2, thread: 3, number: 4 };

    #[test]
    fn lines_are_read_back_and_nothing_else_is() {
        let lines =
            [Line::Submits(KEY, 7), Line::Acknowledged(KEY, 7, u64::MAX), Line::Ends(KEY), Line::Ended(KEY)];
        for line in lines {
            let printed = line.to_string();
            assert_eq!(printed.parse(), Ok(line));
            assert!(printed.len() < 400, "a pipe takes 512 bytes at once, whatever the system");
        }
        for wrong in ["", "+", "+ 1 2 3 4", "+ 1 2 3 4 5 6", "= 1 2 3 4 5", "x 1 2 3 4", "+ 1 2 3 4 x"] {
            assert!(wrong.parse::<Line>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let mut witness = Witness::default();
        let script = [
            "+ 1 2 3 4 0",
            "= 1 2 3 4 0 aa",
            "= 1 2 3 4 1 bb",
            "+ 1 2 3 4 2",
            "E 1 2 3 4",
            "+ 1 2 3 4 1",
            "= 1 2 3 4 1 bb",
        ];
        script.iter().for_each(|line| witness.hear(line));
        assert_eq!(
            witness.garbled, 3,
            "an answer before the question, a gap, an end that was not handed over"
        );
        assert_eq!(witness.episodes[&KEY].acknowledged, [0xaa, 0xbb]);
        assert_eq!(witness.acknowledged(), 2);
    }
}
