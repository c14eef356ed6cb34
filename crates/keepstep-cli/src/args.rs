//! The arguments of the command: the verbs, in the order in which people need them.

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
    about = "Keeps every step of an agent's rollout on disk. A crash costs at most the step in flight.",
    after_help = "STORE is a directory. The default is $KEEPSTEP_STORE, then ./runs.

REF is what you want to see:
  shop-agent                   a run
  shop-agent#0                 an older generation of the run
  shop-agent/shop-17           all episodes of a task in the run
  shop-agent/shop-17#0.2       one episode: iteration 0, sample 2
  shop-agent/shop-17#0.2~1     one attempt at it; the first is ~0
  shop-agent/shop-17#0.2@14    one step of it; the first is @0
  9c9e9966                     an episode by the beginning of its id
In names, spaces and marks such as / are percent-encoded: the run a/b is a%2Fb.
`keepstep ls` prints references as you can type them.

Exit codes:
  0  done
  1  failed (`diff`: they differ)
  2  wrong arguments
  3  done, but some data is lost or damaged

Start with:
  keepstep demo          record, kill -9, and see what is still there
  keepstep doctor        find out what this disk guarantees"
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
    /// Show what was recorded last; with -f also what comes in
    Tail(tail::Args),
    /// Compare two episodes or attempts, step by step
    Diff(diff::Args),
    /// Write episodes to a file that other programs can read
    Export(export::Args),
    /// Mark attempts of dead processes as `crashed`
    Reap(reap::Args),
    /// Count runs, episodes, steps and bytes, and the processes that record
    Stats(stats::Args),
    /// Check every byte, and say what is damaged and what that cost
    Verify(verify::Args),
    /// Rewrite the logs of processes that exited, grouped by episode
    Compact(crate::verbs::compact::Args),
    /// Delete episodes, and leave a note that says why
    Prune(crate::verbs::prune::Args),
    /// Find out what this disk guarantees
    Doctor(doctor::Args),
    /// Kill recorders at random, and check that no acknowledged step is lost
    Torture(crate::verbs::torture::Args),
    /// Print a script that completes verbs and options in your shell
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
