//! Runs the real program, and keeps what it writes in a directory that is removed again.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

#[path = "../../../keepstep/tests/scratch/copying.rs"]
mod copying;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use copying::copy_all;

/// The program under test.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keepstep"));
    command.env_remove("KEEPSTEP_STORE").env("NO_COLOR", "1");
    command
}

/// A directory for one test, on a disk and not in memory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a failed test left is what explains it.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// What a process said, and how it ended.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Printed {
    /// The number under a key of a flat JSON object.
    pub(crate) fn number(&self, key: &str) -> u64 {
        let mark = format!("\"{key}\":");
        let from = self.out.find(&mark).unwrap_or_else(|| panic!("no {key} in {self:?}")) + mark.len();
        let digits: String = self.out[from..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{key} is no number in {self:?}"))
    }

    /// What happened and a hint, as every failure is told.
    pub(crate) fn tells_error_and_hint(&self) -> bool {
        self.err.lines().any(|line| line.starts_with("error: "))
            && self.err.lines().any(|line| line.starts_with("hint: "))
    }
}

/// Runs the program to its end.
pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(dir: &Path, arguments: impl IntoIterator<Item = A>) -> Printed {
    program().current_dir(dir).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// As [`run`], for what may hang: gives up after minutes, which is a guard, and no measure. Then there is no exit code.
pub(crate) fn run_or_give_up(dir: &Path, arguments: &[&str]) -> Printed {
    const ENOUGH: std::time::Duration = std::time::Duration::from_secs(300);
    let mut child = program();
    child.current_dir(dir).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let id = child.id();
    let (says, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || says.send(child.wait_with_output().unwrap()));
    let output = heard.recv_timeout(ENOUGH).unwrap_or_else(|_| {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        heard.recv().unwrap()
    });
    output.into()
}

/// Waits for a process whose stdin stays open, as a recorder needs it.
pub(crate) fn wait_with_open_stdin(mut child: Child) -> Printed {
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    output.into()
}

/// A store with episodes that finished and episodes that were interrupted.
pub(crate) fn demo_store(scratch: &Scratch) -> PathBuf {
    let store = scratch.path("demo");
    let said = run(scratch.dir(), ["demo", "demo", "--episodes", "6", "--steps", "12", "--pause-ms", "1"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    store
}

/// All lines of JSON that a verb prints, each checked to be one whole document.
pub(crate) fn json_lines(said: &Printed) -> Vec<&str> {
    let lines: Vec<&str> = said.out.lines().collect();
    for line in &lines {
        assert_eq!(after_json(line), Some(""), "not JSON: {line}");
    }
    lines
}

/// What follows the first JSON document in a text; nothing if there is none.
fn after_json(text: &str) -> Option<&str> {
    let rest = text.trim_start();
    match rest.chars().next()? {
        '{' => {
            after_items(&rest[1..], '}', |text| after_json(after_text(text)?.trim_start().strip_prefix(':')?))
        }
        '[' => after_items(&rest[1..], ']', after_json),
        '"' => after_text(rest),
        _ => ["null", "true", "false"]
            .iter()
            .find_map(|word| rest.strip_prefix(word))
            .or_else(|| after_number(rest)),
    }
}

fn after_items(text: &str, close: char, item: impl Fn(&str) -> Option<&str>) -> Option<&str> {
    let mut rest = text.trim_start();
    if let Some(after) = rest.strip_prefix(close) {
        return Some(after);
    }
    loop {
        rest = item(rest)?.trim_start();
        match rest.strip_prefix(close) {
            Some(after) => return Some(after),
            None => rest = rest.strip_prefix(',')?,
        }
    }
}

fn after_text(text: &str) -> Option<&str> {
    let mut rest = text.trim_start().strip_prefix('"')?;
    loop {
        let at = rest.find(|c: char| c == '"' || c == '\\' || c.is_control())?;
        match rest.as_bytes()[at] {
            b'"' => return Some(&rest[at + 1..]),
            b'\\' => rest = rest.get(at + 2..)?,
            _ => return None,
        }
    }
}

fn after_number(text: &str) -> Option<&str> {
    let end =
        text.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(text.len());
    text[..end].parse::<f64>().ok().map(|_| &text[end..])
}
