//! Jobs that need a process of their own: one whose memory is measured, one that is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::bars;
use crate::engine::EngineFactory;

/// What a child says when it may be killed.
pub const READY: &str = "ready";

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Job {
    /// Records many live episodes and prints its peak of memory.
    RecordLive,
    /// Fills an open segment, says that it is ready, and waits to be killed.
    FillAndHang,
    /// Records with many writers while its system calls are counted.
    CountCalls,
    /// Compacts a store and prints its peak of memory.
    Compact,
    /// Lists what remains of a plan, and says how long that took.
    ListPlan,
    /// Claims one job of a plan, and says how long that took.
    ClaimFirst,
    /// Claims jobs of a plan with several threads, and says how many a second.
    ClaimJobs,
}

/// The child's side.
pub fn run(factory: &dyn EngineFactory, job: Job, dir: &Path, quick: bool) {
    match job {
        Job::RecordLive => bars::record_and_report(factory, dir, quick),
        Job::FillAndHang => bars::fill_and_hang(factory, dir, quick),
        Job::CountCalls => bars::record_between_marks(factory, dir, quick),
        Job::Compact => bars::compact_and_report(factory, dir),
        Job::ListPlan => bars::list_plan(dir),
        Job::ClaimFirst => bars::first_job(dir),
        Job::ClaimJobs => bars::claim_jobs(dir),
    }
}

/// Runs a job to its end and gives what it printed.
pub fn output(factory: &dyn EngineFactory, job: Job, dir: &Path, quick: bool) -> String {
    let done =
        command(factory, job, dir, quick).stderr(Stdio::inherit()).output().expect("could not run a child");
    assert!(done.status.success(), "the child for {job:?} failed: {}", done.status);
    String::from_utf8(done.stdout).expect("the child prints text")
}

/// Runs a job in several processes at once, and gives what each printed.
pub fn outputs(
    factory: &dyn EngineFactory,
    job: Job,
    dir: &Path,
    quick: bool,
    processes: usize,
) -> Vec<String> {
    let start = |_| command(factory, job, dir, quick).stdout(Stdio::piped()).spawn();
    let children: Vec<_> =
        (0..processes).map(start).collect::<Result<_, _>>().expect("could not start a child");
    let hear = |child: std::process::Child| {
        let done = child.wait_with_output().expect("could not hear a child");
        assert!(done.status.success(), "a child for {job:?} failed: {}", done.status);
        String::from_utf8(done.stdout).expect("the child prints text")
    };
    children.into_iter().map(hear).collect()
}

/// The same, started by another program.
pub fn output_under(
    mut starter: Command,
    factory: &dyn EngineFactory,
    job: Job,
    dir: &Path,
    quick: bool,
) -> String {
    let child = command(factory, job, dir, quick);
    let done = starter.arg(child.get_program()).args(child.get_args()).stderr(Stdio::inherit()).output();
    let done = done.expect("could not run a child");
    assert!(done.status.success(), "the child for {job:?} failed: {}", done.status);
    String::from_utf8(done.stdout).expect("the child prints text")
}

/// Runs a job until it says that it is ready, then kills it with -9.
pub fn kill_when_ready(factory: &dyn EngineFactory, job: Job, dir: &Path, quick: bool) {
    let mut child =
        command(factory, job, dir, quick).stdout(Stdio::piped()).spawn().expect("could not start a child");
    let mut said = String::new();
    let stdout = child.stdout.take().expect("the child's output is piped");
    BufReader::new(stdout).read_line(&mut said).expect("could not hear the child");
    child.kill().expect("could not kill the child");
    child.wait().expect("could not wait for the child");
    assert_eq!(said.trim(), READY, "the child for {job:?} died before it was ready");
}

fn command(factory: &dyn EngineFactory, job: Job, dir: &Path, quick: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("could not find this program"));
    let job = job.to_possible_value().expect("every job has a name");
    command.arg("--engine").arg(factory.name()).arg("child").arg(job.get_name()).arg(dir);
    if quick {
        command.arg("--quick");
    }
    command
}
