//! Other processes of this program: started with a pipe each way, and never left running.
//!
//! They die with their parent: the kernel kills them, and where it cannot, they see the end of their stdin.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Program;
use crate::failure::{Failure, Outcome};

/// A process that this one started. Dropping it kills it.
pub(crate) struct Started {
    child: Child,
    /// The child runs while this is open.
    stdin: Option<ChildStdin>,
}

/// Starts this program again with a hidden verb, and returns what it prints.
///
/// Only call this from the main thread: the kernel kills a child when the *thread* that started it ends.
pub(crate) fn start<A: AsRef<OsStr>>(
    program: &Program,
    verb: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Outcome<(Started, ChildStdout)> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).arg(verb).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let failed = |error: &io::Error| Failure::io("start", program.path.display(), error);
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let started = Started { child, stdin };
    match stdout {
        Some(stdout) => Ok((started, stdout)),
        None => Err(failed(&io::Error::other("it has no stdout"))),
    }
}

impl Started {
    /// Kills it with -9. False if it was gone already.
    pub(crate) fn kill(&mut self) -> bool {
        let is_running = matches!(self.child.try_wait(), Ok(None));
        is_running && self.child.kill().is_ok()
    }

    /// Stops it with SIGSTOP, in the middle of whatever it does.
    pub(crate) fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it continue.
    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        // It is our child, and was not waited for yet, so the number is still its own.
        let _ = id.map(|id| rustix::process::kill_process(id, signal));
    }

    /// Asks it to stop normally, by the end of its stdin.
    pub(crate) fn ask_to_stop(&mut self) {
        self.stdin = None;
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it is gone.
    pub(crate) fn wait(&mut self) -> Outcome<ExitStatus> {
        self.child.wait().map_err(|error| Failure::io("wait for", "a recorder", &error))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// In the child: dies with the parent, and tells when it should stop.
pub(crate) fn live_with_parent() -> Arc<AtomicBool> {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut stdin = io::stdin();
        // Nothing is ever sent: whatever ends the read, it is time to stop.
        while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
        told.store(true, Ordering::Release);
    });
    stop
}
