//! Episodes on paper: what each attempt says, in memory, as simply as it can be told.

use keepstep::{Opening, Resume, WhenBusy};

/// Something that an attempt says, or inherits.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    First(i64),
    Step(i64),
    Intent(i64),
    Result(i64),
    Discard,
    Call(Call),
}

/// A call: without a key it goes by its number in the turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub name: &'static str,
    pub key: Key,
    pub arguments: i64,
    /// What it returned; none if it raised.
    pub result: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    Named(&'static str),
    Number(u64),
}

/// What comes of asking for something.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done,
    Busy,
    Ended,
    BadInput,
    Diverged,
    /// A call that was made before, and what it returned.
    Known(i64),
}

/// One attempt at an episode.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// With the attempt that said it, in order.
    pub lines: Vec<(u32, Line)>,
    pub end: Option<String>,
    /// The store that has it open.
    pub open_in: Option<usize>,
    /// A turn that was inherited and not adopted yet.
    pub unadopted: Option<i64>,
    /// Calls of the present turn, and how many had no key.
    calls: Vec<Call>,
    ordinals: u64,
    /// A call of the present turn failed, in this attempt or before: whoever resumes it may go another way.
    pub has_failed: bool,
}

/// What the steps of these lines say: a turn says what it is in its intent.
pub fn steps(lines: &[(u32, Line)]) -> Vec<(u32, i64)> {
    let mut said = None;
    let mut steps = Vec::new();
    for (attempt, line) in lines {
        match line {
            Line::First(content) | Line::Step(content) => steps.push((*attempt, *content)),
            Line::Intent(content) => said = Some(*content),
            Line::Result(_) => steps.extend(said.take().map(|content| (*attempt, content))),
            Line::Discard => said = None,
            Line::Call(_) => {}
        }
    }
    steps
}

fn completes(line: &Line) -> bool {
    matches!(line, Line::First(_) | Line::Step(_) | Line::Result(_))
}

impl Attempt {
    pub fn steps(&self) -> Vec<(u32, i64)> {
        steps(&self.lines)
    }

    pub fn pending(&self) -> Option<i64> {
        let last = self.lines.iter().rev().find(|(_, line)| !matches!(line, Line::Call(_)));
        match last {
            Some((_, Line::Intent(content))) => Some(*content),
            _ => None,
        }
    }

    fn say(&mut self, attempt: u32, line: Line) -> Answer {
        if self.end.is_some() {
            return Answer::Ended;
        }
        let is_pending = self.pending().is_some();
        let fits = match line {
            Line::First(_) => !is_pending && self.steps().is_empty(),
            Line::Step(_) | Line::Intent(_) => !is_pending,
            Line::Result(_) | Line::Discard => is_pending,
            Line::Call(_) => true,
        };
        if !fits {
            return Answer::BadInput;
        }
        if completes(&line) {
            (self.calls, self.ordinals, self.has_failed) = (Vec::new(), 0, false);
        }
        if line == Line::Discard {
            self.unadopted = None;
            // The next turn has calls of its own, but for those with a key.
            self.ordinals = self.calls.iter().filter_map(number_behind).fold(self.ordinals, u64::max);
        }
        self.lines.push((attempt, line));
        Answer::Done
    }

    /// How many calls without a key were made before the pending turn was said: whoever adopts it goes on behind them.
    fn said_behind(&self) -> u64 {
        let said = self.lines.iter().rposition(|(_, line)| matches!(line, Line::Intent(_))).unwrap_or(0);
        let before = &self.lines[..said];
        let since = before.iter().rposition(|(_, line)| completes(line)).map_or(0, |last| last + 1);
        let number = |(_, line): &(u32, Line)| match line {
            Line::Call(Call { key: Key::Number(number), .. }) => Some(number + 1),
            _ => None,
        };
        before[since..].iter().filter_map(number).max().unwrap_or(0)
    }

    /// Up to where the next attempt inherits, if it can.
    fn cut(&self, resume: Resume, at: Option<u64>) -> Option<usize> {
        let done: Vec<usize> = (0..self.lines.len()).filter(|&at| completes(&self.lines[at].1)).collect();
        match (resume, at) {
            (Resume::Restart, _) => Some(0),
            (_, None) => Some(self.lines.len()),
            (_, Some(0)) => Some(0),
            (_, Some(steps)) => done.get(steps as usize - 1).map(|last| last + 1),
        }
    }

    /// An attempt that goes on behind the first of these lines.
    fn next(&self, cut: usize) -> Self {
        let lines = self.lines[..cut].to_vec();
        let since = lines.iter().rposition(|(_, line)| completes(line)).map_or(0, |last| last + 1);
        let calls = lines[since..].iter().filter_map(|(_, line)| match line {
            Line::Call(call) => Some(call.clone()).filter(|call| call.result.is_some()),
            _ => None,
        });
        let discarded = lines.iter().rposition(|(_, line)| *line == Line::Discard).unwrap_or(0);
        let before = lines[since.min(discarded)..discarded].iter().filter_map(|(_, line)| match line {
            Line::Call(call) => number_behind(call),
            _ => None,
        });
        let ordinals = before.max().unwrap_or(0);
        let mut next = Self { calls: calls.collect(), ordinals, ..Self::default() };
        let has_raised = |(_, line): &(u32, Line)| matches!(line, Line::Call(Call { result: None, .. }));
        next.has_failed = self.has_failed || lines[since..].iter().any(has_raised);
        next.lines = lines;
        next.unadopted = next.pending();
        next
    }
}

/// The number of the next call without a key behind this one.
fn number_behind(call: &Call) -> Option<u64> {
    if let Key::Number(number) = call.key { Some(number + 1) } else { None }
}

/// All attempts at an episode; the last one counts.
#[derive(Debug, Clone, Default)]
pub struct Episode {
    pub attempts: Vec<Attempt>,
    /// Loses a line in each takeover: wrong on purpose.
    pub is_crooked: bool,
}

impl Episode {
    pub fn open(&mut self, store: usize, how: &Opening) -> Answer {
        let (resume, takes) = (how.resume, how.busy == WhenBusy::Take);
        // A handle whose attempt said its end is in nobody's way; one that was taken from has not said it.
        let said_its_end = |attempt: &Attempt| attempt.end.as_deref().is_some_and(|why| why != "superseded");
        if self.attempts.iter().any(|attempt| attempt.open_in == Some(store) && !said_its_end(attempt)) {
            return Answer::Busy;
        }
        let Some(last) = self.attempts.last_mut() else {
            if how.at.is_some_and(|at| at > 0) {
                // There is nothing to inherit.
                return Answer::BadInput;
            }
            self.attempts.push(Attempt { open_in: Some(store), ..Attempt::default() });
            return Answer::Done;
        };
        let is_over = |why: &str| why == "finished" || (why == "truncated" && how.retry.is_empty());
        if last.end.as_deref().is_some_and(is_over) {
            return Answer::Ended;
        }
        if last.end.is_none() && !takes {
            return Answer::Busy;
        }
        if resume == Resume::Refuse {
            return Answer::Ended;
        }
        let Some(cut) = last.cut(resume, how.at) else { return Answer::BadInput };
        last.end.get_or_insert_with(|| "superseded".to_owned());
        let cut = cut.saturating_sub(usize::from(self.is_crooked));
        let next = Attempt { open_in: Some(store), ..last.next(cut) };
        // The old handle is let go for the new one.
        let old = self.attempts.iter_mut().filter(|attempt| attempt.open_in == Some(store));
        old.for_each(|attempt| attempt.open_in = None);
        self.attempts.push(next);
        Answer::Done
    }

    /// The attempt that a store has open; whether it still counts.
    pub fn held_by(&self, store: usize) -> Option<(u32, bool)> {
        let number = self.attempts.iter().position(|attempt| attempt.open_in == Some(store))?;
        Some((number as u32, number + 1 == self.attempts.len()))
    }

    fn last(&mut self) -> (u32, &mut Attempt) {
        let number = self.attempts.len() as u32 - 1;
        (number, self.attempts.last_mut().expect("one is open"))
    }

    pub fn say(&mut self, line: Line) -> Answer {
        let (number, attempt) = self.last();
        attempt.say(number, line)
    }

    /// Says a turn, or adopts the one that was inherited.
    pub fn turn(&mut self, content: i64) -> Answer {
        let (number, attempt) = self.last();
        match attempt.unadopted {
            _ if attempt.end.is_some() => Answer::Ended,
            Some(pending) if pending == content => {
                attempt.unadopted = None;
                attempt.ordinals = attempt.ordinals.max(attempt.said_behind());
                Answer::Done
            }
            Some(_) => Answer::Diverged,
            None => attempt.say(number, Line::Intent(content)),
        }
    }

    pub fn call(
        &mut self,
        name: &'static str,
        key: Option<&'static str>,
        arguments: i64,
        result: Option<i64>,
    ) -> Answer {
        let (number, attempt) = self.last();
        let key = key.map(Key::Named).unwrap_or_else(|| {
            attempt.ordinals += 1;
            Key::Number(attempt.ordinals - 1)
        });
        let is_meant = |call: &&Call| call.key == key && (call.name == name || matches!(key, Key::Number(_)));
        if let Some(known) = attempt.calls.iter().rfind(is_meant) {
            let is_same = known.name == name && known.arguments == arguments;
            attempt.has_failed |= !is_same;
            return if is_same { Answer::Known(known.result.unwrap_or(-1)) } else { Answer::Diverged };
        }
        attempt.has_failed |= result.is_none();
        let call = Call { name, key, arguments, result };
        let answer = attempt.say(number, Line::Call(call.clone()));
        if answer == Answer::Done && result.is_some() {
            attempt.calls.push(call);
        }
        answer
    }

    pub fn end(&mut self, why: &str) -> Answer {
        let (_, attempt) = self.last();
        if attempt.end.is_some() {
            return Answer::Ended;
        }
        attempt.end = Some(why.to_owned());
        Answer::Done
    }

    /// A store lets go of it.
    /// Whoever had it was told that it is another's.
    pub fn lose(&mut self, store: usize) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.open_in == Some(store)) {
            attempt.open_in = None;
        }
    }

    pub fn leave(&mut self, store: usize) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.open_in == Some(store)) {
            attempt.open_in = None;
            attempt.end.get_or_insert_with(|| "aborted".to_owned());
        }
    }
}
