//! What the actors do: open the episode, record some steps, perhaps end it. What they were promised is written down.

use std::sync::Arc;
use std::time::Duration;

use keepstep::tend::CompactOptions;
use keepstep::{
    Broken, Ending, Episode, EpisodeName, Error, Opening, Options, Run, Step, Store, Value, WhenBusy,
};

use super::scheduled_disk::ScheduledDisk;
use super::shelf::digest;
use super::stage::Stage;

/// What an actor does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Script {
    /// It has opened the episode, and recorded so many steps, before the others come.
    pub before: Option<u64>,
    /// Then it records so many.
    pub steps: u64,
    /// And says that the episode is finished.
    pub ends: bool,
    /// If it is refused it opens the episode again, and records one more.
    pub comes_back: bool,
    /// It does this, and opens nothing.
    pub tends: Option<Tends>,
}

/// What somebody does who records nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tends {
    Compact,
    Reap,
}

/// What everybody said, and what they were promised.
#[derive(Debug, Clone, Default)]
pub struct Acknowledged {
    /// Who has which attempt.
    pub owners: Vec<(u32, usize)>,
    pub steps: Vec<HandedOver>,
    /// The end was acknowledged.
    pub is_finished: bool,
    /// Something that must never be.
    pub broke: Option<String>,
}

impl Acknowledged {
    /// Stands for what everybody was promised, in whatever order.
    pub fn digest(&self) -> u64 {
        let (mut owners, mut steps) = (self.owners.clone(), self.steps.clone());
        owners.sort_unstable();
        steps.sort_unstable_by_key(|told| told.content);
        digest((owners, steps, self.is_finished, &self.broke))
    }
}

/// A step that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandedOver {
    pub attempt: u32,
    pub index: u64,
    pub content: i64,
    pub is_acknowledged: bool,
}

pub fn name() -> EpisodeName {
    EpisodeName::task("task")
}

pub fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

/// No threads, no waiting: everything happens on the calling thread, and what fails fails at once.
pub fn options(broken: Option<Broken>) -> Options {
    Options::default().background(false).dictionary(false).stall(Duration::ZERO).broken(broken)
}

pub fn open_run(door: ScheduledDisk, broken: Option<Broken>) -> keepstep::Result<Run> {
    Store::on_files(Arc::new(door), options(broken))?.run("run", Value::Null)
}

/// An actor, ready to begin.
pub struct Actor {
    pub stage: Arc<Stage>,
    pub number: usize,
    pub run: Run,
    pub script: Script,
    episode: Option<Episode>,
    said: i64,
}

impl Actor {
    pub fn new(stage: Arc<Stage>, number: usize, run: Run, script: Script) -> Self {
        let mut actor = Self { stage, number, run, script, episode: None, said: 0 };
        if let Some(before) = script.before {
            actor.open();
            for _ in 0..before {
                assert!(actor.step(), "nobody is in the way");
            }
        }
        actor
    }

    /// All that it has to do. It keeps its episode open.
    pub fn perform(&mut self) {
        if let Some(tends) = self.script.tends {
            return self.tend(tends);
        }
        if self.episode.is_none() {
            self.open();
        }
        for _ in 0..self.script.steps {
            if !self.step() {
                return self.come_back();
            }
        }
        if self.script.ends {
            self.end();
        }
    }

    fn come_back(&mut self) {
        if self.script.comes_back {
            self.episode = None;
            self.open();
            self.step();
        }
    }

    fn tend(&self, tends: Tends) {
        let store = self.run.store();
        let options = CompactOptions::default().grace(Duration::ZERO);
        let done = match tends {
            Tends::Compact => store.compact(options, &mut |_| {}).map(|_| ()),
            Tends::Reap => store.reap().map(|_| ()),
        };
        if let Err(error) = done {
            self.fail("tend the store", &error);
        }
    }

    fn open(&mut self) {
        match self.run.open(name(), taking()) {
            Ok(episode) => {
                let (attempt, number) = (episode.attempt(), self.number);
                self.stage.said(|said| {
                    if let Some((_, other)) = said.owners.iter().find(|(taken, _)| *taken == attempt) {
                        said.broke = Some(format!("actors {other} and {number} both have attempt {attempt}"));
                    }
                    said.owners.push((attempt, number));
                });
                self.episode = Some(episode);
            }
            Err(Error::Ended { .. }) => {}
            // Others closed the log of this process: it may open the episode again.
            Err(Error::LogClosed { .. }) => {}
            Err(error) => self.fail("open the episode", &error),
        }
    }

    /// False if there is no use in going on.
    fn step(&mut self) -> bool {
        let Some(episode) = &self.episode else { return false };
        let (attempt, index) = (episode.attempt(), episode.steps());
        let content = self.number as i64 * 100 + self.said;
        self.said += 1;
        let told = HandedOver { attempt, index, content, is_acknowledged: false };
        self.stage.said(|said| said.steps.push(told));
        match episode.step(Step::new().action(content)) {
            Ok(_) => {
                self.stage.said(|said| {
                    said.steps
                        .iter_mut()
                        .filter(|it| it.content == content)
                        .for_each(|it| it.is_acknowledged = true);
                });
                true
            }
            Err(error) => self.refused("record a step", &error),
        }
    }

    fn end(&self) {
        let Some(episode) = &self.episode else { return };
        match episode.end("finished", Ending::default()).and_then(|receipt| receipt.wait()) {
            Ok(_) => self.stage.said(|said| said.is_finished = true),
            Err(error) => _ = self.refused("end the episode", &error),
        }
    }

    /// Being fenced is an answer; everything else must not happen.
    fn refused(&self, doing: &str, error: &Error) -> bool {
        let is_fenced = match error {
            Error::EarlierFailed(cause) => {
                matches!(**cause, Error::Fenced { .. } | Error::LogClosed { .. })
            }
            error => matches!(error, Error::Fenced { .. } | Error::LogClosed { .. }),
        };
        if !is_fenced {
            self.fail(doing, error);
        }
        false
    }

    fn fail(&self, doing: &str, error: &Error) {
        if !self.stage.is_stopped(self.number) {
            let number = self.number;
            self.stage.said(|said| said.broke = Some(format!("actor {number} could not {doing}: {error}")));
        }
    }
}
