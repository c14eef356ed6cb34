//! What can be typed: the verbs, in the order in which people meet them.

use clap::{Parser, Subcommand};

use crate::torture;
use crate::verbs::{
    completions, demo, demo_recorder, diff, doctor, dump, export, ls, reap, show, stats, tail, verify,
};

/// keepstep keeps every step of an agent's rollout.
#[derive(Debug, Parser)]
#[command(
    name = "keepstep",
    version,
    about = "Keeps every step of an agent's rollout, so that no crash costs more than the step in flight.",
    after_help = "STORE is a directory; without one it is KEEPSTEP_STORE, then ./runs.
REF is run/task#iteration.sample~attempt@step, later parts optional, odd characters
percent-encoded; or the beginning of an id, as long as no other begins so.

Exit codes: 0 done, 1 failed (`diff`: they differ), 2 usage, 3 done but data was lost or damaged.

Start with:
  keepstep demo          record, kill -9, and see what is there
  keepstep doctor        what this disk really guarantees"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Record a few episodes, kill the recorder with -9, and show what survived
    Demo(demo::Args),
    /// List the runs of a store, or the episodes of a run
    Ls(ls::Args),
    /// Show an episode step by step, or one step in full
    Show(show::Args),
    /// Show what was recorded last, and follow what comes in
    Tail(tail::Args),
    /// Compare two episodes or attempts, step by step
    Diff(diff::Args),
    /// Write episodes in the formats of others
    Export(export::Args),
    /// Mark attempts of dead processes as `crashed`
    Reap(reap::Args),
    /// Count what is there, and who records
    Stats(stats::Args),
    /// Read everything, find and place all damage, and say what it cost
    Verify(verify::Args),
    /// Rewrite the logs of exited writers, grouped by episode
    Compact(crate::verbs::compact::Args),
    /// Delete episodes, and leave a note that says why
    Prune(crate::verbs::prune::Args),
    /// Find out what this disk really guarantees
    Doctor(doctor::Args),
    /// Prove it here: kill recorders at random, and compare with what was acknowledged
    Torture(crate::verbs::torture::Args),
    /// Print a script that teaches a shell the verbs and options
    Completions(completions::Args),
    #[command(hide = true)]
    DemoRecorder(demo_recorder::Args),
    #[command(hide = true)]
    DoctorLock(doctor::LockProbeArgs),
    #[command(hide = true)]
    Dump(dump::Args),
    #[command(hide = true)]
    TortureRecorder(torture::recorder::Args),
    #[command(hide = true)]
    TortureCheck(torture::check::Args),
    #[command(hide = true)]
    TortureCompany(torture::company::hands::Args),
}
