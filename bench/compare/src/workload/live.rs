//! Many episodes that are live at once, recorded round by round by a few threads.

use std::thread;

use super::random::fill_step;

/// Every episode takes its next step before any takes the one after.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub episodes: u64,
    pub steps: u64,
    pub step_bytes: usize,
    pub threads: u64,
}

/// 4096 live episodes × 200 steps of 2 KB news each, where each prompt is all the news so far.
pub const GROWING: Live = Live { episodes: 4096, steps: 200, step_bytes: 2048, threads: 8 };

/// 4096 live episodes × 50 steps of 20 KB each, for the peak of memory.
pub const HEAVY: Live = Live { episodes: 4096, steps: 50, step_bytes: 20_480, threads: 64 };

/// 1 GiB in episodes of 100 steps of 2 KB each, 512 live at a time.
pub const GIBIBYTE: Store =
    Store { waves: Live { episodes: 512, steps: 100, step_bytes: 2048, threads: 64 }, bytes: 1 << 30 };

/// A store of a given size, made of waves of live episodes.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub waves: Live,
    pub bytes: u64,
}

impl Store {
    pub fn wave_count(&self) -> u64 {
        self.bytes.div_ceil(self.waves.new_bytes())
    }

    pub fn episodes(&self) -> u64 {
        self.wave_count() * self.waves.episodes
    }
}

impl Live {
    pub fn new_bytes(&self) -> u64 {
        self.episodes * self.steps * self.step_bytes as u64
    }

    /// The bytes that are new in a step.
    pub fn news(&self, task: u64, step: u64) -> Vec<u8> {
        let mut news = vec![0; self.step_bytes];
        fill_step(task, step, &mut news);
        news
    }

    /// Runs `work` on every thread with the tasks that are its own, from `first_task` on.
    pub fn share_out(&self, first_task: u64, work: impl Fn(Vec<u64>) + Sync) {
        thread::scope(|scope| {
            for own in 0..self.threads {
                let tasks = (own..self.episodes).step_by(self.threads as usize);
                let tasks: Vec<u64> = tasks.map(|task| first_task + task).collect();
                let work = &work;
                scope.spawn(move || work(tasks));
            }
        });
    }
}
