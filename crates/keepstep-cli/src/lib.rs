//! The keepstep command. All printing lives here: data on stdout, talk on stderr.
//!
//! Each verb has its own file in `verbs`; it returns how it ended, and this file turns that into an exit code.

mod args;
mod chance;
mod child;
mod columns;
mod doctor;
mod failure;
mod filter;
mod json;
mod naming;
mod numbers;
mod place;
mod planned;
mod progress;
mod reading;
mod render;
mod screen;
mod torture;
mod value_diff;
mod values;
mod verbs;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};
use failure::{Exit, Failure, Outcome};
use screen::Screen;

/// How this program can be started again: `torture`, `demo` and `doctor` need other processes of it.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file to start.
    pub path: PathBuf,
    /// What comes before the verb, such as `-m keepstep` for a Python interpreter.
    pub arguments: Vec<OsString>,
}

/// Runs the command with the arguments of the process, the program's own name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("keepstep"));
    ExitCode::from(run(&Program { path, arguments: Vec::new() }, args))
}

/// As [`main`], for programs that start it in another way. Returns the exit code.
pub fn run(program: &Program, args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and are no failure, nor is a reader that went away.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.code() } else { Exit::Done.code() };
        }
    };
    let mut screen = Screen::new();
    let outcome = dispatch(program, cli.verb, &mut screen).and_then(|exit| screen.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.code(),
        Err(failure) => {
            // Messages from before the failure come before it.
            let _ = screen.flush();
            failure.tell(&screen);
            failure.exit().code()
        }
    }
}

fn dispatch(program: &Program, verb: Verb, screen: &mut Screen) -> Outcome {
    match verb {
        Verb::Demo(args) => verbs::demo::run(&args, program, screen),
        Verb::Ls(args) => verbs::ls::run(&args, screen),
        Verb::Show(args) => verbs::show::run(&args, screen),
        Verb::Tail(args) => verbs::tail::run(&args, screen),
        Verb::Diff(args) => verbs::diff::run(&args, screen),
        Verb::Export(args) => verbs::export::run(&args, screen),
        Verb::Reap(args) => verbs::reap::run(&args, screen),
        Verb::Stats(args) => verbs::stats::run(&args, screen),
        Verb::Verify(args) => verbs::verify::run(&args, screen),
        Verb::Dump(args) => verbs::dump::run(&args, screen),
        Verb::Compact(args) => verbs::compact::run(&args, screen),
        Verb::Prune(args) => verbs::prune::run(&args, screen),
        Verb::Doctor(args) => verbs::doctor::run(&args, program, screen),
        Verb::Torture(args) => verbs::torture::run(&args, program, screen),
        Verb::Completions(args) => verbs::completions::run(&args, screen),
        Verb::DemoRecorder(args) => verbs::demo_recorder::run(&args),
        Verb::DoctorLock(args) => verbs::doctor::run_lock_probe(&args, screen),
        Verb::TortureRecorder(args) => torture::recorder::run(&args, screen),
        Verb::TortureCheck(args) => torture::check::run(&args, screen),
        Verb::TortureCompany(args) => torture::company::hands::run(&args),
    }
}

/// A mistake in the arguments that clap cannot see.
fn usage(message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::new(message).hint(hint).with_exit(Exit::Usage)
}
