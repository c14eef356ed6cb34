//! The store that everybody writes first: full-history JSON in one log, behind the raw limit's group committer.
//!
//! It checks the bench (`--engine naive`): it must come out near 1 where a bar compares with full-history JSONL, and
//! near 1 of the raw limit. It has no checksums and loses a torn tail; nobody should keep a rollout in it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{Engine, EngineFactory, Episode, Item, OpenOptions, Reader, Stats};
use crate::rulers::{Ruler, raw};

const HEAD_BYTES: usize = 12;

pub struct NaiveFactory;

impl EngineFactory for NaiveFactory {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn open(&self, dir: &Path, options: OpenOptions) -> Box<dyn Engine> {
        // Its one segment is never sealed, which suits any size but none.
        assert_ne!(options.segment_bytes, Some(0));
        let log: Box<dyn Ruler + Send> = raw::open_log(dir);
        Box::new(Naive(Arc::new(Log { log, payload_bytes: AtomicU64::new(0) })))
    }

    fn read(&self, dir: &Path) -> Box<dyn Reader> {
        let log = fs::read(dir.join("log")).expect("could not read the log");
        let mut episodes: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        let mut rest = &log[..];
        while let Some((task, record, after)) = next_frame(rest) {
            episodes.entry(task).or_default().push(record.to_vec());
            rest = after;
        }
        Box::new(NaiveReader(episodes))
    }
}

struct Log {
    log: Box<dyn Ruler + Send>,
    payload_bytes: AtomicU64,
}

struct Naive(Arc<Log>);

impl Engine for Naive {
    fn begin(&self, task: u64) -> Box<dyn Episode> {
        Box::new(NaiveEpisode { log: Arc::clone(&self.0), task, history: Vec::new() })
    }

    fn stats(&self) -> Stats {
        let payload_bytes = self.0.payload_bytes.load(Ordering::Relaxed);
        Stats { payload_bytes, open_segment_bytes: payload_bytes, batches: 0 }
    }

    fn close(self: Box<Self>) {}
}

struct NaiveEpisode {
    log: Arc<Log>,
    task: u64,
    /// The messages as JSON, with commas between them.
    /// The items, each as JSON.
    history: Vec<Vec<u8>>,
}

impl Episode for NaiveEpisode {
    fn submit(&mut self, record: &[u8]) {
        let mut frame = Vec::with_capacity(HEAD_BYTES + record.len());
        frame.extend_from_slice(&self.task.to_le_bytes());
        frame.extend_from_slice(&(record.len() as u32).to_le_bytes());
        frame.extend_from_slice(record);
        self.log.payload_bytes.fetch_add(record.len() as u64, Ordering::Relaxed);
        self.log.log.append(0, &frame);
    }

    fn wait(&mut self) {}

    fn hear(&mut self, item: Item<'_>) {
        let mut json = Vec::new();
        push_json(&mut json, item);
        self.history.push(json);
    }

    fn forget(&mut self, oldest: usize) {
        self.history.drain(..oldest);
    }

    fn turn(&mut self, response: &[Item<'_>]) {
        let mut said = Vec::new();
        response.iter().for_each(|item| push_json(&mut said, *item));
        let prompt = self.history.join(&b","[..]);
        let line = [b"{\"prompt\":[", &prompt[..], b"],\"response\":[", &said[..], b"]}\n"].concat();
        self.submit(&line);
    }

    fn end(self: Box<Self>) {}
}

struct NaiveReader(HashMap<u64, Vec<Vec<u8>>>);

impl Reader for NaiveReader {
    fn list(&self) -> usize {
        self.0.len()
    }

    fn read(&self, task: u64) -> Vec<Vec<u8>> {
        self.0.get(&task).cloned().unwrap_or_default()
    }
}

fn push_json(list: &mut Vec<u8>, item: Item<'_>) {
    if !list.is_empty() {
        list.push(b',');
    }
    match item {
        Item::Json(value) => serde_json::to_writer(list, value).expect("JSON comes out as it went in"),
        // The bytes as they are: no JSON, but as long as the baseline counts them.
        Item::Chat { role, content } => {
            list.extend_from_slice(format!("{{\"role\":\"{role}\",\"content\":\"").as_bytes());
            list.extend_from_slice(content);
            list.extend_from_slice(b"\"}");
        }
    }
}

fn next_frame(log: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (task, rest) = log.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u64::from_le_bytes(*task), record, rest))
}
