//! What the bars need of a store that records steps, whatever it is.
//!
//! The bars know nothing else of keepstep, so that its API can change in one file (`keepstep_engine.rs`), and so that a
//! store that does nothing clever (`naive_engine.rs`) can show that the bars measure what they say.
//! An error is a panic: a bench that goes on after one measures nothing.

use std::path::Path;
use std::sync::Mutex;

use crate::rulers::Ruler;

#[derive(Clone, Copy, Default)]
pub struct OpenOptions {
    /// Segments are sealed at this size; `None` is the engine's own choice.
    pub segment_bytes: Option<u64>,
}

/// Makes engines and readers; also in the child processes of this program.
pub trait EngineFactory: Sync {
    /// How a person calls it, and the value of `--engine` that chooses it.
    fn name(&self) -> &'static str;

    /// Opens a store for recording, made if it is not there. Steps are acknowledged at `power`.
    fn open(&self, dir: &Path, options: OpenOptions) -> Box<dyn Engine>;

    /// Opens a store for reading, also one whose writer was killed. What this does is what "opening" is timed by.
    fn read(&self, dir: &Path) -> Box<dyn Reader>;

    /// Regroups a store whose writers are gone, and deletes what that replaces. False if the engine has nothing of the kind.
    fn compact(&self, _dir: &Path) -> bool {
        false
    }

    /// How many separate ranges of the data are read to read one episode, the index not counted.
    fn places(&self, _dir: &Path, _task: u64) -> Option<u64> {
        None
    }
}

/// One process's store, shared by all its threads.
pub trait Engine: Send + Sync {
    /// Begins the episode that `Reader::read` finds by the same number. No number is begun twice in one store.
    fn begin(&self, task: u64) -> Box<dyn Episode>;

    fn stats(&self) -> Stats;

    /// Seals what is open and leaves nothing running. All episodes are dropped or ended before.
    fn close(self: Box<Self>);
}

#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Bytes of all steps as encoded, before frames, commit records, indexes and footers.
    pub payload_bytes: u64,
    /// Bytes in the segment that is being written now.
    pub open_segment_bytes: u64,
    /// How many batches were committed.
    pub batches: u64,
}

/// An episode being recorded, by one thread at a time.
pub trait Episode: Send {
    /// Records a step with these bytes in one field, and returns when it survives a power cut.
    fn append(&mut self, record: &[u8]) {
        self.submit(record);
        self.wait();
    }

    /// The same, but returns before it is durable. Waits only where the engine's queue is full.
    fn submit(&mut self, record: &[u8]);

    /// Returns when all that was submitted survives a power cut.
    fn wait(&mut self);

    /// Adds to the list that this episode's turns have as their prompt. Records nothing: it is the user's own list.
    fn hear(&mut self, item: Item<'_>);

    /// Drops the oldest items of that list.
    fn forget(&mut self, oldest: usize);

    /// Submits a step: the *whole* list so far as its prompt, and this response. As a user would, it hands the engine the
    /// whole list every time, and tells it nothing about what is old in it.
    fn turn(&mut self, response: &[Item<'_>]);

    /// Ends the episode as finished, durably.
    fn end(self: Box<Self>);
}

/// One message of a conversation.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Json(&'a serde_json::Value),
    /// `{"role": role, "content": content}`, where the content is bytes.
    Chat {
        role: &'a str,
        content: &'a [u8],
    },
}

pub trait Reader {
    /// Lists all episodes and says how many there are.
    fn list(&self) -> usize;

    /// The records of all steps of an episode, in order, checked as always when reading; none if it is not there.
    fn read(&self, task: u64) -> Vec<Vec<u8>>;
}

/// An engine in a ruler's place: each writer appends to an episode of its own.
pub struct EngineRuler {
    // Before the engine, since fields are dropped in this order.
    episodes: Vec<Mutex<Box<dyn Episode>>>,
    engine: Box<dyn Engine>,
}

impl EngineRuler {
    pub fn open(factory: &dyn EngineFactory, dir: &Path, writers: usize) -> Self {
        let engine = factory.open(dir, OpenOptions::default());
        let episodes = (0..writers as u64).map(|task| Mutex::new(engine.begin(task))).collect();
        EngineRuler { episodes, engine }
    }

    /// Ends all episodes and closes the store; gives its last numbers.
    pub fn close(self) -> Stats {
        for episode in self.episodes {
            episode.into_inner().unwrap().end();
        }
        let stats = self.engine.stats();
        self.engine.close();
        stats
    }
}

impl Ruler for EngineRuler {
    fn append(&self, writer: usize, record: &[u8]) {
        self.episodes[writer].lock().unwrap().append(record);
    }
}
