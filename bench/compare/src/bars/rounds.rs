//! Records live episodes round by round: every episode's next step is submitted before any is waited for.

use crate::engine::{Engine, Episode};
use crate::workload::live::Live;

/// Steps of random bytes in one field, each without the history before it.
pub fn record(engine: &dyn Engine, live: Live, first_task: u64) {
    record_with(engine, live, first_task, |episode, news| episode.submit(news));
}

/// The same, with the caller saying how the news of a step is submitted.
pub fn record_with(
    engine: &dyn Engine,
    live: Live,
    first_task: u64,
    submit: impl Fn(&mut dyn Episode, &[u8]) + Sync,
) {
    live.share_out(first_task, |tasks| {
        let begin = |task| (task, engine.begin(task));
        let mut episodes: Vec<(u64, Box<dyn Episode>)> = tasks.into_iter().map(begin).collect();
        for step in 0..live.steps {
            for (task, episode) in &mut episodes {
                submit(&mut **episode, &live.news(*task, step));
            }
            episodes.iter_mut().for_each(|(_, episode)| episode.wait());
        }
        episodes.into_iter().for_each(|(_, episode)| episode.end());
    });
}
