//! Random histories: a few processes that record, one after another; each is closed, killed, or stays and does no more.

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::{
    Ending, Episode, EpisodeName, Error, NoteTarget, Opening, Options, Resume, Run, Step, Store, Value,
    WhenBusy,
};

use super::paper::{self, Paper, shown};

/// The same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// What is recorded, and what is on paper beside it.
pub struct History {
    pub sim: SimDisk,
    pub paper: Paper,
    dice: Dice,
    said: i64,
    /// Processes that are still there.
    idle: Vec<Recording>,
}

/// A process that still has its store open.
pub struct Recording {
    pub run: Run,
    process: Arc<SimProcess>,
    /// What it has open: by its number on paper.
    held: Vec<(usize, Episode)>,
    /// What was taken from it: it says nothing more about that.
    taken: Vec<(usize, Episode)>,
}

/// A text of so many bytes that repeats nothing.
pub fn text(seed: u64, bytes: usize) -> String {
    let mut dice = Dice::new(seed);
    (0..bytes).map(|_| char::from(b'a' + dice.below(26) as u8)).collect()
}

/// The run of a process. Reading makes no writer, so that this is how others look, too.
pub fn run_on(disk: Arc<dyn Files>, name: &str, segment_bytes_max: u64) -> Run {
    let stall = Duration::from_millis(500);
    let options = Options::default()
        .background(false)
        .dictionary(false)
        .stall(stall)
        .segment_bytes_max(segment_bytes_max);
    Store::on_files(disk, options).expect("opens").run(name, Value::Null).expect("opens")
}

impl History {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let run = if dice.one_in(2) { text(seed, 300) } else { "run".to_owned() };
        let tasks = ["short".to_owned(), text(seed + 1, 255), text(seed + 2, 256), text(seed + 3, 700)];
        let mut episodes = Vec::new();
        for iteration in 0..1 + dice.below(2) as i64 {
            let task = dice.pick(&tasks).clone();
            for sample in 0..2 + dice.below(2) as i64 {
                let name = EpisodeName::task(task.clone()).iteration(iteration).sample(sample);
                episodes.push(paper::Episode { name, attempts: Vec::new(), score: None });
            }
        }
        let paper = Paper { run, episodes, ..Paper::default() };
        Self { sim: SimDisk::new(seed), paper, dice, said: 0, idle: Vec::new() }
    }

    /// A process comes, opens some of what is not over, and records.
    pub fn record(&mut self) -> Recording {
        let process = self.sim.process();
        let segment_bytes_max = *self.dice.pick(&[1500, 4000, 1 << 20]);
        let run = run_on(process.clone(), &self.paper.run, segment_bytes_max);
        if self.said == 0 {
            // To be pruned at the end, out of the same log.
            let other = run.store().run("other", Value::Null).expect("opens");
            let other = other.episode(EpisodeName::task("other")).expect("begins");
            other.step(Step::new().action(1)).expect("records");
            other.end("finished", Ending::default()).and_then(|receipt| receipt.wait()).expect("ends");
            self.said = 1;
        }
        let mut recording = Recording { run, process, held: Vec::new(), taken: Vec::new() };
        for at in 0..self.paper.episodes.len() {
            let is_over = self.paper.episodes[at].attempts.last().is_some_and(paper::Attempt::is_over);
            if !is_over && !self.dice.one_in(3) {
                let episode = self.open(&recording.run, at);
                recording.held.push((at, episode));
            }
        }
        for _ in 0..self.dice.below(24) {
            if !recording.held.is_empty() {
                let at = self.dice.below(recording.held.len() as u64) as usize;
                self.act(&mut recording, at);
            }
        }
        self.annotate(&recording.run);
        self.seal(&recording.run);
        recording
    }

    fn open(&mut self, run: &Run, at: usize) -> Episode {
        let is_held = self.idle.iter().flat_map(|idle| &idle.held).any(|(held, _)| *held == at);
        let paper = &mut self.paper.episodes[at];
        let mut opening = Opening::default().busy(WhenBusy::Take);
        let mut next = paper::Attempt::default();
        if let Some(last) = paper.attempts.last_mut() {
            last.why.get_or_insert_with(|| if is_held { "superseded" } else { "crashed" }.to_owned());
            next = paper::Attempt { why: None, label: None, inherited: last.steps.len(), ..last.clone() };
            if self.dice.one_in(4) {
                let steps = self.dice.below(last.steps.len() as u64 + 1) as usize;
                opening.at = Some(steps as u64);
                next.steps.truncate(steps);
                // It goes on right behind the last step that it keeps.
                next.notes.retain(|note| note.behind < steps);
                (next.inherited, next.pending) = (steps, None);
            } else if self.dice.one_in(6) {
                opening.resume = Resume::Restart;
                next = paper::Attempt::default();
            }
        }
        let pending = next.pending;
        let episode = run.open(paper.name.clone(), opening).expect("opens");
        for idle in &mut self.idle {
            let (taken, held) = std::mem::take(&mut idle.held).into_iter().partition(|(held, _)| *held == at);
            idle.held = held;
            let taken: Vec<_> = taken;
            for (_, episode) in &taken {
                // It gets into the log all the same.
                let note = episode.note("seen", Value::Int(-1), "loop", None);
                let refused = note.and_then(|receipt| receipt.wait());
                assert!(matches!(refused, Err(Error::Fenced { .. })), "{refused:?}");
            }
            idle.taken.extend(taken);
        }
        assert_eq!(episode.inherited(), next.steps.len() as u64);
        paper.attempts.push(next);
        if let Some(action) = pending {
            // What was inherited is taken up, or given up.
            if self.dice.one_in(2) {
                episode.turn(Step::new().action(action)).expect("adopts");
                self.complete(&episode, at, action);
            } else {
                episode.discard("why not").and_then(|receipt| receipt.wait()).expect("discards");
                self.last(at).pending = None;
            }
        }
        episode
    }

    fn last(&mut self, at: usize) -> &mut paper::Attempt {
        self.paper.episodes[at].attempts.last_mut().expect("one is open")
    }

    fn reward(&mut self) -> Option<f64> {
        *self.dice.pick(&[None, None, None, None, Some(0.0), Some(0.0), Some(-0.5), Some(0.5), Some(2.0)])
    }

    /// The result of a turn that was said.
    fn complete(&mut self, episode: &Episode, at: usize, action: i64) {
        let is_error = self.dice.one_in(4);
        let reward = if is_error { None } else { self.reward() };
        let result = match is_error {
            true => Step::new().error(Value::map([("type", Value::from("ValueError"))])),
            false => Step::new().reward(reward).observation(text(self.said as u64, 90)),
        };
        episode.result(result).expect("completes");
        let last = self.last(at);
        last.pending = None;
        last.steps.push(paper::Step { action, reward });
    }

    fn act(&mut self, recording: &mut Recording, held: usize) {
        self.said += 1;
        let (action, (at, episode)) = (self.said, &recording.held[held]);
        let at = *at;
        let paper = self.last(at);
        if let Some(action) = paper.pending {
            match self.dice.below(3) {
                0 => self.complete(episode, at, action),
                1 => {
                    episode.discard("why not").and_then(|receipt| receipt.wait()).expect("discards");
                    self.last(at).pending = None;
                }
                _ => episode
                    .call_once("ask", None, Value::Int(action), || Ok(Value::Null))
                    .map(drop)
                    .expect("calls"),
            }
            return;
        }
        match self.dice.below(12) {
            0 if self.last(at).steps.is_empty() => {
                let first = Step::new().action(action).observation("first");
                episode.first(first).and_then(|receipt| receipt.wait()).expect("records");
                self.last(at).steps.push(paper::Step { action, reward: None });
            }
            0..=4 => {
                let mut reward = self.reward();
                if self.dice.one_in(12) {
                    reward = Some(f64::NAN);
                }
                let step = Step::new().action(action).prompt(text(7, 200 + action as usize * 10));
                let step = if self.dice.one_in(3) && reward.is_none() { step } else { step.reward(reward) };
                episode.step(step).expect("records");
                self.last(at).steps.push(paper::Step { action, reward });
            }
            5..=7 => {
                episode.turn(Step::new().action(action)).expect("is said");
                self.last(at).pending = Some(action);
            }
            8 | 9 => {
                let note = episode.note("seen", Value::Int(action), "loop", None);
                note.and_then(|receipt| receipt.wait()).expect("notes");
                let attempt = episode.attempt();
                let last = self.last(at);
                let behind = last.steps.len();
                last.notes.push(paper::Note { attempt, behind, value: action });
            }
            _ => {
                let why = *self.dice.pick(&["finished", "finished", "truncated", "errored", "aborted"]);
                episode.end(why, Ending::default()).and_then(|receipt| receipt.wait()).expect("ends");
                self.last(at).why = Some(why.to_owned());
                drop(recording.held.remove(held));
            }
        }
    }

    /// Scores some episodes, whoever recorded them.
    fn annotate(&mut self, run: &Run) {
        for at in 0..self.paper.episodes.len() {
            if self.paper.episodes[at].attempts.is_empty() || !self.dice.one_in(3) {
                continue;
            }
            let score = self.dice.below(5) as f64;
            let target = NoteTarget::episode(run.episode_id(&self.paper.episodes[at].name));
            let noted = run.annotate(target, "score", Value::Float(score), "judge");
            noted.and_then(|receipt| receipt.wait()).expect("notes");
            self.paper.episodes[at].score = Some(score);
            let attempt = self.dice.below(self.paper.episodes[at].attempts.len() as u64) as usize;
            let label = self.dice.below(100) as i64;
            let noted = run.annotate(target.attempt(attempt as u32), "label", Value::Int(label), "judge");
            noted.and_then(|receipt| receipt.wait()).expect("notes");
            self.paper.episodes[at].attempts[attempt].label = Some(label);
        }
    }

    /// Seals groups of which all members are over.
    fn seal(&mut self, run: &Run) {
        let name = |it: &paper::Episode| (it.name.task.clone(), it.name.iteration);
        for group in self.paper.episodes.chunk_by(|a, b| name(a) == name(b)) {
            let key = name(&group[0]);
            let is_over = |it: &paper::Episode| it.attempts.last().is_some_and(paper::Attempt::is_over);
            if self.paper.groups.contains_key(&key) || !group.iter().all(is_over) {
                continue;
            }
            let reward = |it: &paper::Episode| (run.episode_id(&it.name), it.name.sample as f64);
            let rewards: Vec<_> = group.iter().map(reward).collect();
            let given = self.dice.one_in(2).then_some(&rewards[..]);
            let sealed = run.group(&key.0, key.1, group.len()).seal(given, "judge", None).expect("seals");
            let members = group.iter().zip(&rewards);
            let members =
                members.map(|(it, (_, reward))| (it.name.sample, shown(given.map(|_| *reward)))).collect();
            assert_eq!(sealed.members.len(), group.len());
            self.paper.groups.insert(key, members);
        }
    }

    /// The process is killed, goes in good order, or stays.
    pub fn leave(&mut self, recording: Recording) {
        match self.dice.below(3) {
            0 => return recording.process.kill(),
            1 => return self.idle.push(recording),
            _ => {}
        }
        for (at, episode) in recording.held {
            drop(episode);
            self.last(at).why = Some("aborted".to_owned());
        }
        recording.run.store().close();
    }

    /// Whoever is still there is killed.
    pub fn kill_all(&mut self) {
        self.idle.drain(..).for_each(|idle| idle.process.kill());
    }
}
