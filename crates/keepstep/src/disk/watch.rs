//! Notices when files change, so that a follower can sleep.
//!
//! No change is missed: it is either noticed, or the watch knows that it is blind and looks again soon. Signs of life
//! do not count as changes: a process that checks a lock opens and closes it, and a beat is written all the time.
//! Otherwise a follower would wake itself with its own checks.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Watch;

/// How often a blind watch (the system has no more watches) says that something may have changed.
const BLIND_WAIT: Duration = Duration::from_millis(100);

/// Files that only show that their writer is alive. No follower waits for those.
#[cfg(target_os = "linux")]
const SIGNS_OF_LIFE: [&std::ffi::CStr; 2] = [c"lock", c"beat"];

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
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::SIGNS_OF_LIFE;

    /// The events of the kernel.
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
            // When a process dies, the files that it wrote are closed: that is worth a look too.
            let flags =
                WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
            inotify::add_watch(&self.fd, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags).is_ok()
        }

        pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
            let started = Instant::now();
            loop {
                let left = timeout.saturating_sub(started.elapsed());
                match self.poll(left) {
                    Ok(false) => return Ok(false),
                    Ok(true) if self.drain()? => return Ok(true),
                    // A signal: the caller may want to check its stop flag.
                    Err(rustix::io::Errno::INTR) => return Ok(true),
                    Err(error) => return Err(error.into()),
                    Ok(true) => {}
                }
            }
        }

        fn poll(&self, timeout: Duration) -> rustix::io::Result<bool> {
            let timeout = Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            Ok(poll(&mut polled, Some(&timeout))? > 0)
        }

        /// Reads all events of the kernel. True if any of them matters.
        fn drain(&self) -> io::Result<bool> {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut told = inotify::Reader::new(&self.fd, &mut buffer);
            let mut matters = false;
            loop {
                match told.next() {
                    // An event without a name (the kernel lost some, a folder is gone) always matters.
                    Ok(event) => {
                        matters |= !event.file_name().is_some_and(|name| SIGNS_OF_LIFE.contains(&name));
                    }
                    Err(rustix::io::Errno::AGAIN) => return Ok(matters),
                    Err(rustix::io::Errno::INTR) => {}
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::super::{Files, RealDisk};
    use crate::segment::Liveness;
    use crate::segment::testing::{STORE, TestStore};

    /// An idle follower used a whole core: asking whether a writer is alive woke its own watch, and so did every beat.
    /// What the kernel tells is there as soon as the call returns, so nothing has to be waited for.
    #[test]
    fn signs_of_life_wake_nobody() {
        let store = TestStore::new("watch");
        let writer = keepstep_format::Id([7; 16]);
        let path = |name: &str| format!("writers/{writer}/{name}");
        for name in ["lock", "beat", "0.seg"] {
            store.write(&path(name), b"x");
        }
        let disk = std::sync::Arc::new(RealDisk::open(&store.path).expect("opens"));
        let doors = super::super::Directory::over(disk.clone());
        let mut watch = disk.watch(&[format!("writers/{writer}")]).expect("watches");
        let mut wakes = |what: &dyn Fn()| {
            what();
            watch.wait(Duration::ZERO).expect("waits")
        };
        let write = |name: &'static str| {
            let path = path(name);
            let disk = &disk;
            move || disk.open_rw(&path).and_then(|file| file.write_at(b"y", 0)).expect("writes")
        };
        assert!(!wakes(&|| assert_eq!(crate::own::liveness(&*doors, &STORE, &writer), Liveness::Unknown)));
        assert!(!wakes(&write("beat")));
        assert!(!wakes(&write("lock")));
        assert!(wakes(&write("0.seg")), "the control: something new is noticed");
        assert!(!wakes(&|| {}), "and once");
        assert!(wakes(&|| drop(disk.create_new(&path("1.seg")).expect("creates"))), "a new name too");
    }
}
