//! `keepstep compact`: rewrites the logs of exited writers, grouped by episode.

use std::path::PathBuf;
use std::time::Duration;

use keepstep::Store;
use keepstep::tend::{CompactOptions, CompactReport, LeftAlone};

use crate::failure::{Exit, Outcome};
use crate::json::Json;
use crate::numbers::{bytes, counted};
use crate::place::{open_to_read, store_path};
use crate::progress;
use crate::screen::{Screen, shown};

/// More than these would hide what was done.
const LEFT_ALONE_SHOWN: usize = 10;

/// Arguments of `keepstep compact`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep compact                    KEEPSTEP_STORE, or ./runs
  keepstep compact /mnt/data/runs
  keepstep compact --grace 0 --json

Other processes may read and record meanwhile. Only logs of processes that seem
to be gone are rewritten. If one of these is still alive, its episodes are
fenced, and it can open them again.

The old files stay for the grace period, for readers that still have them open.
The next `compact` or `prune` after that deletes them, and files that were left
half-made; with `--grace 0` they are deleted at once. You can stop `compact` at
any point, and run it again.")]
pub(crate) struct Args {
    /// The store
    store: Option<PathBuf>,
    /// How long the old files stay, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    grace: f64,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let options = CompactOptions::default().grace(grace(args.grace)?);
    let store = open_to_read(&store_path(args.store.as_deref()))?;
    let bar = progress::bytes(0, "compacting");
    let report = store.compact(options, &mut |told| {
        bar.set_length(told.bytes_total);
        bar.set_position(told.bytes_done);
    });
    bar.finish_and_clear();
    let mut report = report?;
    delete_at_once(&store, args.grace, &mut report)?;
    if args.json {
        screen.json(&json(&report))?;
    } else {
        for line in lines(&report) {
            screen.line(&line)?;
        }
        say_left_alone(&report.left_alone, screen)?;
    }
    Ok(Exit::Done)
}

/// The next call deletes what this one replaced: without a grace period, that is now.
pub(crate) fn delete_at_once(store: &Store, grace: f64, report: &mut CompactReport) -> Outcome<()> {
    if grace == 0.0 && report.files_waiting > 0 {
        let options = CompactOptions::default().grace(Duration::ZERO);
        report.add(store.compact(options, &mut |_| {})?);
    }
    Ok(())
}

/// A time that was given in seconds.
pub(crate) fn grace(seconds: f64) -> Outcome<Duration> {
    let wrong = |_| crate::usage(format!("--grace {seconds} is no time"), "give seconds, such as 3600");
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

/// What was done, for people.
pub(crate) fn lines(report: &CompactReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.logs > 0 {
        lines.push(format!(
            "regrouped  {} of {}: {} became {}",
            counted(report.segments_replaced, "segment"),
            counted(report.logs, "recorder"),
            bytes(report.bytes_before),
            bytes(report.bytes_after)
        ));
    }
    if report.files_deleted > 0 {
        let freed = bytes(report.bytes_deleted);
        lines.push(format!("deleted    {}, {freed}", counted(report.files_deleted, "file")));
    }
    if report.files_waiting > 0 {
        let files = counted(report.files_waiting, "file");
        lines.push(format!(
            "waiting    {files}, deleted by the next `compact` or `prune` after the grace period"
        ));
    }
    if lines.is_empty() {
        lines.push("nothing to do".to_owned());
    }
    lines
}

/// Which logs stay as they are, and why.
pub(crate) fn say_left_alone(left_alone: &[LeftAlone], screen: &mut Screen) -> Outcome<()> {
    screen.flush()?;
    for left in left_alone.iter().take(LEFT_ALONE_SHOWN) {
        screen.say(&shown(&format!("left alone: writer {}: {}", left.writer, left.why)));
    }
    if left_alone.len() > LEFT_ALONE_SHOWN {
        screen.say(&format!("… and {} more", left_alone.len() - LEFT_ALONE_SHOWN));
    }
    Ok(())
}

/// What was done, for programs.
pub(crate) fn json(report: &CompactReport) -> Json {
    let left_alone = report.left_alone.iter().map(|left| {
        Json::map([("writer", Json::from(left.writer.to_string())), ("why", Json::from(&*left.why))])
    });
    Json::map([
        ("logs", Json::from(report.logs)),
        ("segments_replaced", report.segments_replaced.into()),
        ("bytes_before", report.bytes_before.into()),
        ("segments_made", report.segments_made.into()),
        ("bytes_after", report.bytes_after.into()),
        ("records", report.records.into()),
        ("blocks", report.blocks.into()),
        ("files_deleted", report.files_deleted.into()),
        ("bytes_deleted", report.bytes_deleted.into()),
        ("files_waiting", report.files_waiting.into()),
        ("left_alone", Json::list(left_alone)),
    ])
}
