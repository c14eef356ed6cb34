//! Measures keepstep against the raw limit of the disk and against its peers, and holds it to `bench/bars.toml`.
//!
//! `bench/README.md` says how to read what it prints.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program for people, which must stop at the first error: half a measurement is none"
)]
#![allow(unreachable_pub, reason = "a program has no outside: `pub` says which parts of a module others use")]

mod bars;
mod child;
mod engine;
mod keepstep_engine;
mod measure;
mod naive_engine;
mod quiet;
mod report;
mod rulers;
mod scratch;
mod settings;
mod show_rulers;
mod stats;
mod watched_disk;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, panic, process};

use clap::{Parser, Subcommand};

use bars::{Got, MEASUREMENTS};
use engine::EngineFactory;
use report::Row;
use settings::{Settings, repository};

/// Measure keepstep against the raw limit of this disk, SQLite, fjall and redb.
#[derive(Parser)]
struct Arguments {
    /// 3 pairs and small stores: shows that the bench works, proves no bar
    #[arg(long, global = true)]
    quick: bool,
    /// Run only the bars (or rulers) whose name contains this
    #[arg(long, value_name = "SUBSTR", global = true, default_value = "", hide_default_value = true)]
    only: String,
    /// Exit with 0 although bars are missed (not if they are missing)
    #[arg(long)]
    report_only: bool,
    /// Where to write the rows [default: target/bench.json; target/bench-part.json with --quick or --only]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// How long the whole run may wait for others to leave the processors alone
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 120)]
    patience: u64,
    #[arg(long, value_name = "NAME", default_value = "keepstep", hide = true)]
    engine: String,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Show what the rulers alone reach on this machine
    Rulers,
    #[command(hide = true)]
    Child { job: child::Job, dir: PathBuf },
}

fn main() -> ExitCode {
    stop_at_the_first_panic();
    let arguments = Arguments::parse();
    quiet::set_patience(Duration::from_secs(arguments.patience));
    let settings = Settings::new(arguments.quick);
    let engine = choose_engine(&arguments.engine);
    match &arguments.verb {
        Some(Verb::Child { job, dir }) => {
            child::run(engine.expect("a child has an engine"), *job, dir, arguments.quick);
            return ExitCode::SUCCESS;
        }
        Some(Verb::Rulers) => {
            prepare(&settings);
            show_rulers::show(&settings, &arguments.only);
            println!("{}", quiet::describe());
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    prepare(&settings);
    let rows = run_bars(&settings, engine, &arguments.only);
    report::print_table(&rows);
    println!("{}", quiet::describe());
    let out = arguments.out.clone().unwrap_or_else(|| default_out(&arguments));
    report::write_json(&out, &rows);
    println!("written to {}", out.display());
    exit_code(&rows, arguments.report_only)
}

/// `None` where the engine is not built in: its bars are then missing, which is a failure.
fn choose_engine(name: &str) -> Option<&'static dyn EngineFactory> {
    match name {
        "keepstep" => Some(&keepstep_engine::KeepstepFactory),
        "naive" => Some(&naive_engine::NaiveFactory),
        _ => None,
    }
}

fn run_bars(settings: &Settings, engine: Option<&dyn EngineFactory>, only: &str) -> Vec<Row> {
    let mut bars = report::load_bars(&repository().join("bench/bars.toml"));
    bars.retain(|bar| bar.name.contains(only));
    let mut measured: Vec<Got> = Vec::new();
    let Some(factory) = engine else {
        println!("the engine is not built into this program, so that nothing can be measured");
        return report::judge(&bars, &measured);
    };
    for one in MEASUREMENTS.iter().filter(|one| one.bars.iter().any(|bar| bar.contains(only))) {
        println!("{}", one.bars.join(", "));
        let start = Instant::now();
        measured.extend((one.run)(settings, factory));
        println!("  took {:.0} s", start.elapsed().as_secs_f64());
    }
    report::judge(&bars, &measured)
}

fn prepare(settings: &Settings) {
    fs::create_dir_all(&settings.data_dir)
        .unwrap_or_else(|error| panic!("could not create {}: {error}", settings.data_dir.display()));
    scratch::sweep(&settings.data_dir);
    println!("in {}", settings.data_dir.display());
}

/// A run that left something out must not pass for a whole one.
fn default_out(arguments: &Arguments) -> PathBuf {
    let part = arguments.quick || !arguments.only.is_empty() || arguments.engine != "keepstep";
    let name = if part { "bench-part.json" } else { "bench.json" };
    repository().join(Path::new("target").join(name))
}

fn exit_code(rows: &[Row], report_only: bool) -> ExitCode {
    let missing = rows.is_empty() || rows.iter().any(|row| row.got.is_none());
    let missed = rows.iter().any(|row| row.got.is_some() && !row.ok);
    if missing || (missed && !report_only) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A writer that panics would leave the others waiting for an acknowledgement that never comes.
fn stop_at_the_first_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        print(panic);
        process::exit(1);
    }));
}
