//! `keepstep doctor`: what this disk really guarantees, found by trying.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use keepstep::disk::{FileSystem, Files, LockState, RealDisk};

use crate::Program;
use crate::chance::new_seed;
use crate::child;
use crate::doctor::mount::{self, Mount};
use crate::doctor::probes::{self, Finding, Latency, RACERS, RACES, Trouble};
use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::numbers::{bytes, span_us};
use crate::place::store_path;
use crate::screen::{Paint, Screen, shown};

/// No disk that we know of answers a flush faster than this; memory and liars do.
const HONEST_SYNC_US: i64 = 15;

/// Arguments of `keepstep doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep doctor                     where ./runs is, or would be made
  keepstep doctor /mnt/data
  keepstep doctor --json | jq .levels

It makes a few small files in a new directory there, and removes them again.
`keepstep torture DIR` tests with kill -9 whether the promises are kept.")]
pub(crate) struct Args {
    /// A store, or any directory on the disk
    store: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of the other process that looks at a lock. Hidden.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LockProbeArgs {
    dir: PathBuf,
    name: String,
}

pub(crate) fn run_lock_probe(args: &LockProbeArgs, screen: &mut Screen) -> Outcome {
    let state = probes::lock_state(&args.dir, &args.name);
    let state = state.map_err(|error| Failure::io("look at the lock of", &args.name, &error))?;
    screen.line(if state == LockState::Held { "held" } else { "free" })?;
    Ok(Exit::Done)
}

pub(crate) fn run(args: &Args, program: &Program, screen: &mut Screen) -> Outcome {
    let wanted = store_path(args.store.as_deref());
    keepstep::refuse_address(&wanted)?;
    let directory = existing(&wanted)?;
    let checkup = examine(&wanted, &directory, program)?;
    if args.json {
        screen.json(&checkup.json())?;
    } else {
        checkup.show(screen)?;
    }
    Ok(if checkup.kill().is_ok() { Exit::Done } else { Exit::Failed })
}

/// The directory itself, or the one in which it would be made.
fn existing(wanted: &Path) -> Outcome<PathBuf> {
    let mut at = wanted.to_path_buf();
    loop {
        if at.is_dir() {
            return Ok(at);
        }
        if at.exists() {
            let failure = Failure::new(format!("{} is not a directory", at.display()));
            return Err(failure.hint("name a directory on the disk in question"));
        }
        at = match at.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
    }
}

/// A directory that is removed again.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All that was found.
struct Checkup {
    wanted: PathBuf,
    directory: PathBuf,
    file_system: FileSystem,
    mount: Option<Mount>,
    write_cache: Option<String>,
    free_bytes: u64,
    total_bytes: u64,
    sync: Finding<Latency>,
    sync_directory: Finding<i64>,
    link: Finding<()>,
    create: Finding<()>,
    lock: Finding<()>,
    notice: Finding<()>,
}

fn examine(wanted: &Path, directory: &Path, program: &Program) -> Outcome<Checkup> {
    let scratch = Scratch(directory.join(format!(".keepstep-doctor-{:08x}", new_seed())));
    let failed = |error: &std::io::Error| Failure::io("write to", directory.display(), error);
    std::fs::create_dir(&scratch.0).map_err(|error| failed(&error))?;
    let disk = RealDisk::open(&scratch.0).map_err(|error| failed(&error))?;
    let file_system = disk.file_system().map_err(|error| failed(&error))?;
    let space = rustix::fs::statvfs(directory).map_err(|error| failed(&error.into()))?;
    Ok(Checkup {
        wanted: wanted.to_path_buf(),
        directory: directory.to_path_buf(),
        file_system,
        mount: mount::of(directory),
        write_cache: mount::write_cache(directory),
        free_bytes: space.f_bavail * space.f_frsize,
        total_bytes: space.f_blocks * space.f_frsize,
        sync: probes::sync_latency(&disk),
        sync_directory: probes::sync_directory(&disk),
        link: probes::race_links(&disk),
        create: probes::race_creates(&disk),
        lock: probes::lock(&disk, |name| ask_other_process(program, &scratch.0, name)),
        notice: probes::notice(&disk),
    })
}

fn ask_other_process(program: &Program, dir: &Path, name: &str) -> Finding<LockState> {
    let arguments = [dir.as_os_str().to_owned(), OsString::from(name)];
    let unknown = |why: String| Trouble::Unknown(why);
    let started = child::start(program, "doctor-lock", arguments);
    let (mut process, mut says) = started
        .map_err(|failure| unknown(format!("the probe could not be started: {}", failure.message())))?;
    let mut said = String::new();
    let heard = says.read_to_string(&mut said);
    let ended =
        process.wait().map_err(|failure| unknown(format!("the probe was lost: {}", failure.message())))?;
    match (heard, said.trim()) {
        (Ok(_), "held") => Ok(LockState::Held),
        (Ok(_), "free") => Ok(LockState::Free),
        _ => Err(unknown(format!("the probe crashed: {ended}; what it said is above"))),
    }
}

impl Checkup {
    fn file_system_name(&self) -> String {
        match self.file_system {
            FileSystem::Local(name) => name.to_owned(),
            FileSystem::Memory(name) => format!("{name}, which is memory"),
            FileSystem::Unsynced(name, _) => name.to_owned(),
            FileSystem::Network(number) => match &self.mount {
                Some(mount) => format!("{}, which counts as a network", mount.kind),
                None => format!("of type {number:#x}, which counts as a network"),
            },
        }
    }

    /// Whether steps can be recorded that survive a kill, or why not.
    fn kill(&self) -> Finding<()> {
        if matches!(self.file_system, FileSystem::Network(_)) {
            return Err("locks and caches of a network cannot be trusted: record to a local disk".into());
        }
        let say = |what: &str, finding: &Finding<()>| finding.clone().map_err(|why| why.of(what));
        say("exclusive create by link", &self.link)?;
        say("exclusive create by O_EXCL", &self.create)?;
        say("locks between processes", &self.lock)
    }

    /// Whether steps can be recorded that survive a power cut, or why not.
    fn power(&self) -> Finding<()> {
        self.kill()?;
        match self.file_system {
            FileSystem::Memory(_) => return Err("it is memory, which a power cut empties".into()),
            FileSystem::Unsynced(_, why) => return Err(why.into()),
            FileSystem::Local(_) | FileSystem::Network(_) => {}
        }
        self.sync.as_ref().map_err(|why| why.clone().of("syncs"))?;
        self.sync_directory.as_ref().map_err(|why| why.clone().of("syncs of a directory"))?;
        Ok(())
    }

    fn machine() -> Finding<()> {
        Err("the disk is lost with the machine; buckets come later".into())
    }

    /// What the levels do not say.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Ok(sync) = &self.sync
            && sync.p50_us < HONEST_SYNC_US
            && matches!(self.file_system, FileSystem::Local(_))
        {
            notes.push(format!(
                "a sync in {} is faster than any disk answers: something in between (a virtual machine, a container) may not pass it on",
                span_us(sync.p50_us)
            ));
        }
        if self.file_system == FileSystem::Local("overlay") {
            notes.push(
                "this is the layer of a container, and is deleted with it: record to a volume to keep it"
                    .to_owned(),
            );
        }
        if self.mount.as_ref().is_some_and(mount::hides_its_layer) {
            notes.push("the layer that is written to cannot be seen from here: level power holds if that is a disk, and not memory".to_owned());
        }
        if std::env::var_os("LD_PRELOAD").is_some_and(|loaded| loaded.to_string_lossy().contains("eatmydata"))
        {
            notes.push("LD_PRELOAD has eatmydata, which swallows syncs: no level but kill holds".to_owned());
        }
        if self.free_bytes < 1 << 30 {
            notes.push(format!("only {} are free", bytes(self.free_bytes)));
        }
        notes
    }

    fn json(&self) -> Json {
        let finding = |finding: &Finding<()>| match finding {
            Ok(()) => Json::map([("ok", Json::Bool(true))]),
            Err(Trouble::Fails(why)) => Json::map([("ok", Json::Bool(false)), ("why", Json::from(&**why))]),
            Err(Trouble::Unknown(why)) => Json::map([("ok", Json::Null), ("why", Json::from(&**why))]),
        };
        let sync = match &self.sync {
            Ok(sync) => Json::map([
                ("ok", Json::Bool(true)),
                ("p50_us", sync.p50_us.into()),
                ("p99_us", sync.p99_us.into()),
                ("tries", sync.tries.into()),
            ]),
            Err(why) => finding(&Err(why.clone())),
        };
        let sync_directory = match &self.sync_directory {
            Ok(us) => Json::map([("ok", Json::Bool(true)), ("us", Json::from(*us))]),
            Err(why) => finding(&Err(why.clone())),
        };
        let mount = self.mount.as_ref().map(|mount| {
            Json::map([
                ("point", Json::from(&*mount.point)),
                ("source", Json::from(&*mount.source)),
                ("options", Json::from(&*mount.options)),
            ])
        });
        Json::map([
            ("directory", Json::from(self.directory.display().to_string())),
            ("file_system", Json::from(self.file_system_name())),
            ("mount", mount.unwrap_or(Json::Null)),
            ("write_cache", Json::from(self.write_cache.clone())),
            ("free_bytes", self.free_bytes.into()),
            ("total_bytes", self.total_bytes.into()),
            ("sync", sync),
            ("sync_directory", sync_directory),
            ("exclusive_link", finding(&self.link)),
            ("exclusive_create", finding(&self.create)),
            ("lock", finding(&self.lock)),
            ("notice", finding(&self.notice)),
            (
                "levels",
                Json::map([
                    ("kill", finding(&self.kill())),
                    ("power", finding(&self.power())),
                    ("machine", finding(&Self::machine())),
                ]),
            ),
            ("notes", Json::list(self.notes().into_iter().map(Json::from))),
        ])
    }

    fn show(&self, screen: &mut Screen) -> Outcome<()> {
        for (name, what) in self.facts(screen.data) {
            screen.line(&format!("{name:<16}{what}"))?;
        }
        screen.line("")?;
        let levels = [
            ("kill", self.kill(), "a step survives the death of its process"),
            ("power", self.power(), "a step survives a power cut"),
            ("machine", Self::machine(), ""),
        ];
        for (level, reached, meaning) in levels {
            let answer = match &reached {
                Ok(()) => format!("{}  {meaning}", screen.data.green("yes")),
                Err(Trouble::Fails(why)) => format!("{}   {}", screen.data.yellow("no"), shown(why)),
                Err(Trouble::Unknown(why)) => format!("{}  {}", screen.data.yellow("unknown"), shown(why)),
            };
            screen.line(&format!("level {level:<10}{answer}"))?;
        }
        for note in self.notes() {
            screen.line(&format!("{} {}", screen.data.yellow("note:"), shown(&note)))?;
        }
        Ok(())
    }

    fn facts(&self, paint: Paint) -> Vec<(&'static str, String)> {
        let ok = paint.green("ok");
        let tell = |finding: &Finding<()>, good: String| match finding {
            Ok(()) => format!("{ok}: {good}"),
            Err(Trouble::Fails(why)) => format!("{}: {}", paint.red("failed"), shown(why)),
            Err(Trouble::Unknown(why)) => format!("{}: {}", paint.yellow("unknown"), shown(why)),
        };
        let would = if self.wanted == self.directory { "" } else { ", where it would be made" };
        let mut file_system = self.file_system_name();
        if let Some(mount) = &self.mount {
            file_system += &format!(
                " from {}, mounted at {} ({})",
                shown(&mount.source),
                shown(&mount.point),
                shown(&mount.options)
            );
        }
        let sync = match &self.sync {
            Ok(sync) => format!(
                "{ok}: p50 {}, p99 {} ({} appends of 4 KiB, each synced)",
                span_us(sync.p50_us),
                span_us(sync.p99_us),
                sync.tries
            ),
            Err(why) => tell(&Err(why.clone()), String::new()),
        };
        let sync_directory = match &self.sync_directory {
            Ok(us) => tell(&Ok(()), format!("synced in {}", span_us(*us))),
            Err(why) => tell(&Err(why.clone()), String::new()),
        };
        let cache = match self.write_cache.as_deref() {
            Some("write back") => "the disk has one; each sync flushes it".to_owned(),
            Some("write through") => "none that a power cut could empty, says the disk".to_owned(),
            Some(other) => shown(other).into_owned(),
            None => "unknown".to_owned(),
        };
        let races = format!("one winner in each of {RACES} races of {RACERS} threads");
        vec![
            ("directory", format!("{}{would}", shown(&self.directory.display().to_string()))),
            ("file system", file_system),
            ("room", format!("{} free of {}", bytes(self.free_bytes), bytes(self.total_bytes))),
            ("write cache", cache),
            ("sync", sync),
            ("directory sync", sync_directory),
            ("link(2)", tell(&self.link, races.clone())),
            ("O_EXCL", tell(&self.create, races)),
            ("lock", tell(&self.lock, "another process sees it held, and sees it go".to_owned())),
            ("watch", tell(&self.notice, "a change is noticed without looking".to_owned())),
        ]
    }
}
