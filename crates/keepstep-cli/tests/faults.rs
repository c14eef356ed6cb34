//! EIO, ENOSPC, read-only and vanishing directories, in the real program.
//!
//! Whatever fails, a step that was acknowledged before is there afterwards; the error says what to do; and when the
//! cause is gone, recording goes on. Errors are injected with `strace`; `make faults` requires it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says why it was skipped"
)]

mod program;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use program::{Printed, Scratch, program, wait_with_open_stdin};

const SEED: &str = "11";

/// True if errors can be injected here.
fn has_strace() -> bool {
    let has = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !has {
        println!("skipped: strace is not installed, so no error can be injected");
    }
    has
}

/// A recorder, and the store that it records to.
struct Recorder {
    scratch: Scratch,
    arguments: Vec<String>,
}

impl Recorder {
    fn new(more: &[&str]) -> Self {
        let scratch = Scratch::new();
        let store = scratch.path("store").display().to_string();
        let mut arguments: Vec<String> =
            ["torture-recorder", "--store", &store, "--run", "r", "--seed", SEED].map(str::to_owned).into();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        Self { scratch, arguments }
    }

    fn store(&self) -> PathBuf {
        self.scratch.path("store")
    }

    /// Records while system calls fail. Gives what it said, and how many calls were made to fail.
    fn record_with(&self, inject: &str) -> (Printed, usize) {
        let log = self.scratch.path("strace.log");
        let calls = inject.split(':').next().unwrap();
        let child = Command::new("strace")
            .args(["-f", "-qq", "-o"])
            .arg(&log)
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")])
            .arg(env!("CARGO_BIN_EXE_keepstep"))
            .args(&self.arguments)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = wait_with_open_stdin(child);
        let injected = std::fs::read_to_string(&log).unwrap_or_default().matches("(INJECTED)").count();
        (said, injected)
    }

    /// Compares the store with what the recorder had been promised.
    fn check(&self, said: &Printed) -> Printed {
        let mut check = program()
            .args(["torture-check", "--run", "r", "--seed", SEED, "--store"])
            .arg(self.store())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        check.stdin.take().unwrap().write_all(said.out.as_bytes()).unwrap();
        check.wait_with_output().unwrap().into()
    }

    /// Nothing that was acknowledged is lost, nothing is torn, invented or damaged.
    fn expect_all_kept(&self, said: &Printed, what: &str) -> u64 {
        if said.out.is_empty() {
            // Nothing was promised; there may not even be a store.
            return 0;
        }
        let checked = self.check(said);
        assert_eq!(checked.code, Some(0), "{what}: {checked:?}\nthe recorder said: {}", said.err);
        checked.number("acked")
    }
}

/// How many steps the workload has when nothing goes wrong.
fn steps_without_faults(more: &[&str]) -> u64 {
    let recorder = Recorder::new(more);
    let child = program()
        .args(&recorder.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = wait_with_open_stdin(child);
    assert_eq!(said.code, Some(0), "{said:?}");
    recorder.expect_all_kept(&said, "without faults")
}

const SMALL: [&str; 6] = ["--threads", "2", "--episodes", "4", "--segment-bytes", "16384"];

/// A disk that fails for a moment costs nothing: the caller does not even hear of it.
#[test]
fn a_moment_of_failing_is_survived_without_a_word() {
    if !has_strace() {
        return;
    }
    let more = [&SMALL[..], &["--stall-s", "30"]].concat();
    let all = steps_without_faults(&more);
    let faults = [
        "fdatasync:error=EIO:when=6..9",
        "fdatasync:error=ENOSPC:when=6..9",
        "pwrite64:error=ENOSPC:when=10..13",
        "pwrite64:error=EIO:when=9",
        "linkat:error=ENOSPC:when=3..5",
        "linkat:error=EIO:when=3",
    ];
    for fault in faults {
        let recorder = Recorder::new(&more);
        let (said, injected) = recorder.record_with(fault);
        assert!(injected > 0, "{fault}: nothing was injected");
        assert_eq!(said.code, Some(0), "{fault}: {}", said.err);
        assert_eq!(recorder.expect_all_kept(&said, fault), all, "{fault}: not all steps were recorded");
    }
}

/// A disk that goes on failing is told to the caller, with what to do; what was acknowledged before stays.
#[test]
fn a_disk_that_goes_on_failing_is_told_with_its_remedy() {
    if !has_strace() {
        return;
    }
    let faults = [
        ("fdatasync:error=EIO:when=8+", "Input/output error", "dmesg"),
        ("pwrite64:error=EIO:when=12+", "Input/output error", "dmesg"),
        ("pwrite64:error=ENOSPC:when=12+", "the disk is full", "make room"),
        ("fdatasync:error=ENOSPC:when=8+", "the disk is full", "make room"),
        ("pwrite64:error=EDQUOT:when=12+", "the disk is full", "make room"),
        ("pwrite64,fdatasync,linkat:error=EROFS:when=12+", "Read-only file system", "mounted read-only"),
    ];
    for (fault, words, remedy) in faults {
        let recorder = Recorder::new(&[&SMALL[..], &["--stall-s", "0.2"]].concat());
        let (said, injected) = recorder.record_with(fault);
        assert!(injected > 0, "{fault}: nothing was injected");
        assert_eq!(said.code, Some(1), "{fault}: {said:?}");
        assert!(said.tells_error_and_hint(), "{fault}: {}", said.err);
        assert!(said.err.contains(words) && said.err.contains(remedy), "{fault}: {}", said.err);
        let kept = recorder.expect_all_kept(&said, fault);
        assert!(kept > 0, "{fault}: it failed before anything was recorded");
    }
}

/// A fault that lasts longer than a step waits: the caller hears of it, tries again, and everything gets recorded.
#[test]
fn recording_goes_on_when_the_cause_is_gone() {
    if !has_strace() {
        return;
    }
    let more =
        ["--threads", "1", "--episodes", "6", "--segment-bytes", "65536", "--retry", "--stall-s", "0.01"];
    let all = steps_without_faults(&more);
    for fault in ["pwrite64:error=ENOSPC:when=14..60", "fdatasync:error=EIO:when=9..30"] {
        let recorder = Recorder::new(&more);
        let (said, injected) = recorder.record_with(fault);
        assert!(injected > 10, "{fault}: only {injected} were injected");
        assert!(said.err.contains("trying again"), "{fault}: the caller heard of nothing: {}", said.err);
        assert_eq!(said.code, Some(0), "{fault}: {}", said.err);
        assert_eq!(recorder.expect_all_kept(&said, fault), all, "{fault}: not all steps were recorded");
    }
}

/// As before, wherever the fault begins: in the first record of an episode, in the middle, in the last.
///
/// A BEGIN that failed left acknowledged steps without a name, and an END that failed could not be said again.
#[test]
fn recording_goes_on_wherever_the_fault_begins() {
    if !has_strace() {
        return;
    }
    let more =
        ["--threads", "1", "--episodes", "5", "--segment-bytes", "16384", "--retry", "--stall-s", "0.01"];
    let all = steps_without_faults(&more);
    for first in 3..=45 {
        let fault = format!("pwrite64:error=ENOSPC:when={first}..{}", first + 15);
        let recorder = Recorder::new(&more);
        let (said, injected) = recorder.record_with(&fault);
        assert_eq!(said.code, Some(0), "{fault}: {}", said.err);
        assert_eq!(
            recorder.expect_all_kept(&said, &fault),
            all,
            "{fault}, {injected} injected: not all steps were recorded"
        );
    }
}

/// Each system call that matters, failing once, at each of its first times: told, or survived; never a loss.
#[test]
fn whichever_call_fails_once_nothing_is_lost() {
    if !has_strace() {
        return;
    }
    let mut survived = 0;
    for call in ["pwrite64", "fdatasync", "fsync", "linkat", "mkdirat", "unlinkat", "fcntl"] {
        for time in 1..=12 {
            for error in ["EIO", "ENOSPC"] {
                let fault = format!("{call}:error={error}:when={time}");
                let recorder =
                    Recorder::new(&["--episodes", "2", "--segment-bytes", "32768", "--stall-s", "5"]);
                let (said, injected) = recorder.record_with(&fault);
                if injected == 0 {
                    continue;
                }
                match said.code {
                    Some(0) => survived += 1,
                    Some(1) => assert!(said.tells_error_and_hint(), "{fault}: {}", said.err),
                    _ => panic!("{fault}: {said:?}"),
                }
                recorder.expect_all_kept(&said, &fault);
            }
        }
    }
    assert!(survived > 20, "hardly any fault was survived: {survived}");
}

/// Files may not grow beyond a limit: writes come back short, then fail. Every step finds a place all the same.
#[test]
fn a_limit_on_the_size_of_files_cuts_writes_short() {
    let recorder = Recorder::new(&[
        "--threads",
        "4",
        "--episodes",
        "12",
        "--segment-bytes",
        "67108864",
        "--stall-s",
        "30",
    ]);
    // The signal that comes with it would end the process: somebody who sets such a limit ignores it.
    let script = "trap '' XFSZ; ulimit -f 5000; exec \"$0\" \"$@\"";
    let child = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_keepstep")])
        .args(&recorder.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = wait_with_open_stdin(child);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let kept = recorder.expect_all_kept(&said, "ulimit -f");
    assert!(kept > 0);
}

/// A directory that may not be written to is told at once, with what to do.
#[test]
fn a_read_only_directory_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let closed = scratch.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = as_nobody(&scratch);
    let store = closed.join("store");
    let output = command
        .args(["torture-recorder", "--run", "r", "--seed", SEED, "--store"])
        .arg(&store)
        .stdin(Stdio::piped())
        .output();
    let copy = Path::new(command.get_program());
    if copy.starts_with(std::env::temp_dir()) {
        std::fs::remove_file(copy).unwrap();
    }
    let said = Printed::from(output.unwrap());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.tells_error_and_hint() && said.err.contains("Permission denied"), "{}", said.err);
    assert!(said.err.contains("who may write"), "{}", said.err);
    assert!(said.out.is_empty(), "something was acknowledged: {said:?}");
}

/// The program, without the rights of root where the tests have them.
fn as_nobody(scratch: &Scratch) -> Command {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    if std::fs::metadata(scratch.dir()).unwrap().uid() != 0 {
        return program();
    }
    // Where root built it nobody else may look; a copy in a place that is open to all can be run.
    let open = std::env::temp_dir().join(format!("keepstep-as-nobody-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_keepstep"), &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(open);
    command.uid(65534).gid(65534).current_dir("/").env("NO_COLOR", "1");
    command
}

/// Somebody deletes the store while it is recorded to: the recorder must notice, and say so.
#[test]
fn a_store_that_is_deleted_is_noticed() {
    let recorder = Recorder::new(&["--threads", "2", "--stall-s", "2"]);
    let mut child = program()
        .args(&recorder.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged =
        lines.by_ref().map(Result::unwrap).filter(|line| line.starts_with("= ")).take(20).count();
    assert_eq!(acknowledged, 20);
    delete(&recorder.store());
    let stdin = child.stdin.take();
    // Read on, or the recorder would wait for us.
    lines.for_each(drop);
    let said = Printed::from(child.wait_with_output().unwrap());
    drop(stdin);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.tells_error_and_hint() && said.err.contains("deleted"), "{}", said.err);
}

/// Files may come while it is deleted, as the recorder goes on.
fn delete(store: &Path) {
    for _ in 0..1000 {
        match std::fs::remove_dir_all(store) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {}
            _ => return,
        }
    }
    panic!("{} cannot be deleted", store.display());
}
