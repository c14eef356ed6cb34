//! Notices when files change, so that whoever follows a log can sleep.
//!
//! A change is never missed: it is either noticed, or the watch knows that it is blind and looks again soon.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Watch;

/// How often a watch that sees nothing (the system has no more watches to give) says that something may have changed.
const BLIND_WAIT: Duration = Duration::from_millis(100);

/// Directories of a real disk that are watched.
pub(super) struct RealWatch {
    root: OwnedFd,
    watched: HashSet<String>,
    events: Option<events::Events>,
}

impl RealWatch {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, watched: HashSet::new(), events: events::Events::new() }
    }
}

impl Watch for RealWatch {
    fn add(&mut self, dir: &str) -> io::Result<()> {
        if self.watched.contains(dir) {
            return Ok(());
        }
        let Some(events) = &mut self.events else { return Ok(()) };
        // By the descriptor's path: the store may have been moved since it was opened.
        let opened = rustix::fs::openat(
            &self.root,
            super::real::or_dot(dir),
            super::real::DIR,
            rustix::fs::Mode::empty(),
        );
        let fd = match opened {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if events.add(&fd) {
            self.watched.insert(dir.to_owned());
        } else {
            self.events = None;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        match &mut self.events {
            Some(events) => events.wait(timeout),
            None => {
                std::thread::sleep(timeout.min(BLIND_WAIT));
                Ok(true)
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod events {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    /// What the kernel tells.
    pub(super) struct Events {
        fd: OwnedFd,
    }

    impl Events {
        pub(super) fn new() -> Option<Self> {
            let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            Some(Self { fd })
        }

        /// False if the system gives no more watches.
        pub(super) fn add(&mut self, dir: &OwnedFd) -> bool {
            // A file that was written to is closed when its process dies: that is worth a look too.
            let flags =
                WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
            inotify::add_watch(&self.fd, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags).is_ok()
        }

        pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
            let timeout = Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => Ok(false),
                Ok(_) => self.drain().map(|()| true),
                // A signal: whoever waits may want to look at its stop flag.
                Err(rustix::io::Errno::INTR) => Ok(true),
                Err(error) => Err(error.into()),
            }
        }

        fn drain(&self) -> io::Result<()> {
            let mut buffer = [0u8; 4096];
            loop {
                match rustix::io::read(&self.fd, &mut buffer) {
                    Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod events {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// Never made: the watch is blind here.
    pub(super) enum Events {}

    impl Events {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn add(&mut self, _: &OwnedFd) -> bool {
            match *self {}
        }

        pub(super) fn wait(&mut self, _: Duration) -> io::Result<bool> {
            match *self {}
        }
    }
}
