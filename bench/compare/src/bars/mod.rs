//! One file for each kind of bar. `bench/bars.toml` says what each must reach; here stands how it is measured.

mod after_kill;
mod chat;
mod compacted;
mod disk_bytes;
mod episodes;
mod gibibyte;
mod live_histories;
mod lone_writer;
mod memory;
mod owning;
mod plans;
mod rollouts;
mod rounds;
mod throughput;

pub use after_kill::fill_and_hang;
pub use compacted::compact_and_report;
pub use memory::record_and_report;
pub use owning::record_between_marks;
pub use plans::{claim_jobs, first_job, list_plan};

use crate::engine::EngineFactory;
use crate::settings::Settings;

/// A measured number, under the name that its bar has in `bars.toml`.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    pub name: &'static str,
    pub value: f64,
}

pub struct Measurement {
    /// The bars that this measures, all in one go.
    pub bars: &'static [&'static str],
    /// May give fewer than it covers, after saying why: those bars are then missing.
    pub run: fn(&Settings, &dyn EngineFactory) -> Vec<Got>,
}

/// In the order of running: ratios first, since the big stores leave the disk busy for a while.
pub const MEASUREMENTS: &[Measurement] = &[
    Measurement { bars: &["write-64-raw"], run: throughput::at_64_against_raw },
    Measurement { bars: &["write-64-sqlite-batched"], run: throughput::at_64_against_sqlite_batched },
    Measurement { bars: &["write-64-sqlite-commit"], run: throughput::at_64_against_sqlite_commit },
    Measurement { bars: &["write-64-fjall"], run: throughput::at_64_against_fjall },
    Measurement { bars: &["write-64-redb"], run: throughput::at_64_against_redb },
    Measurement { bars: &["write-512-raw"], run: throughput::at_512_against_raw },
    Measurement { bars: &["write-512-64"], run: throughput::at_512_against_64 },
    Measurement { bars: &["write-1-p50"], run: lone_writer::p50_against_bare },
    Measurement { bars: &["disk-64"], run: disk_bytes::with_64_writers },
    Measurement { bars: &["disk-1"], run: disk_bytes::with_one_writer },
    Measurement { bars: &["size-rollouts"], run: rollouts::against_jsonl },
    Measurement { bars: &["size-chat-200"], run: chat::against_jsonl },
    Measurement { bars: &["size-window-400"], run: chat::window },
    Measurement { bars: &["size-live-4096x200"], run: live_histories::stored_per_new_byte },
    Measurement { bars: &["rss-live-4096x50", "lost-live-4096x50"], run: memory::peak_and_losses },
    Measurement { bars: &["open-1gib", "read-100-steps"], run: gibibyte::open_and_read },
    Measurement { bars: &["open-after-kill"], run: after_kill::open },
    Measurement { bars: &["owning-syncs", "owning-look-ups"], run: owning::calls_per_batch },
    Measurement {
        bars: &["compact-rollouts-vs-zstd3", "compact-read-places"],
        run: compacted::rollouts_and_places,
    },
    Measurement { bars: &["compact-1gib-rss"], run: compacted::peak_of_a_gibibyte },
    Measurement { bars: &["plan-list-100k", "plan-first-job"], run: plans::list_and_first_job },
    Measurement { bars: &["plan-claims"], run: plans::claims_per_second },
    Measurement { bars: &["short-episodes"], run: episodes::short_per_second },
    Measurement { bars: &["open-episode"], run: episodes::open_in_a_large_store },
];
