//! Wakes event loops when receipts come: one wake-up per commit and loop, however many tasks wait.
//!
//! The committer only writes to an eventfd (a pipe where there is none); the loop's own thread then looks which of its
//! receipts have come. So recording goes on while some Python thread keeps the interpreter.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep::Waker;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::receipt::Receipt;

/// What the committer touches.
struct Wire {
    /// Somebody waits: the next commit is worth a wake-up.
    armed: AtomicBool,
    /// The end that is written to.
    tell: OwnedFd,
}

impl Waker for Wire {
    fn ring(&self) {
        if self.armed.swap(false, Ordering::AcqRel) {
            // A wire that is full has a wake-up on its way already.
            let _ = rustix::io::write(&self.tell, &1u64.to_ne_bytes());
        }
    }
}

/// One event loop's receipts that have not come yet.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct LoopBell {
    wire: Arc<Wire>,
    waker: Arc<dyn Waker>,
    /// The end that the loop watches; the same as `tell` for an eventfd.
    hear: OwnedFd,
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    receipt: Py<Receipt>,
    future: Py<PyAny>,
}

impl LoopBell {
    /// What stores ring.
    pub(crate) fn waker(&self) -> &Arc<dyn Waker> {
        &self.waker
    }

    /// Completes the future when the receipt has come, or could not.
    pub(crate) fn add(&self, receipt: Py<Receipt>, future: Py<PyAny>) {
        self.lock().push_back(Waiting { receipt, future });
        self.wire.armed.store(true, Ordering::Release);
    }

    /// Rings by itself: for what came before the wire was armed.
    pub(crate) fn ring_now(&self) {
        self.wire.ring();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out all that have come.
    fn take_come(&self) -> Vec<(Waiting, keepstep::Result<()>)> {
        let mut come = Vec::new();
        let mut waiting = self.lock();
        let mut left = VecDeque::with_capacity(waiting.len());
        for one in waiting.drain(..) {
            match one.receipt.get().poll() {
                Some(outcome) => come.push((one, outcome)),
                None => left.push_back(one),
            }
        }
        *waiting = left;
        come
    }
}

#[pymethods]
impl LoopBell {
    #[new]
    fn new() -> PyResult<Self> {
        let (hear, tell) = wire()?;
        let wire = Arc::new(Wire { armed: AtomicBool::new(false), tell });
        let waker: Arc<dyn Waker> = Arc::clone(&wire) as Arc<dyn Waker>;
        Ok(Self { wire, waker, hear, waiting: Mutex::default() })
    }

    /// What the loop watches.
    fn fileno(&self) -> i32 {
        self.hear.as_raw_fd()
    }

    /// How many receipts are waited for.
    fn __len__(&self) -> usize {
        self.lock().len()
    }

    /// Called by the loop when the wire was rung: completes the futures whose receipts have come.
    fn on_ring(&self, py: Python<'_>) -> PyResult<()> {
        let mut buffer = [0; 64];
        // It is non-blocking: whatever it says, what has come is looked at.
        let _ = rustix::io::read(&self.hear, &mut buffer);
        loop {
            for (Waiting { receipt, future }, outcome) in self.take_come() {
                settle(py, receipt, future.bind(py), outcome)?;
            }
            if self.lock().is_empty() {
                return Ok(());
            }
            self.wire.armed.store(true, Ordering::Release);
            // What came before the wire was armed again rings nobody.
            if !self.lock().iter().any(|one| one.receipt.get().poll().is_some()) {
                return Ok(());
            }
        }
    }
}

fn settle(
    py: Python<'_>,
    receipt: Py<Receipt>,
    future: &Bound<'_, PyAny>,
    outcome: keepstep::Result<()>,
) -> PyResult<()> {
    // Its task may have been cancelled: the step stays recorded.
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    match outcome {
        Ok(()) => future.call_method1("set_result", (receipt,))?,
        Err(error) => future.call_method1("set_exception", (raise(py, &error),))?,
    };
    Ok(())
}

#[cfg(target_os = "linux")]
fn wire() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::event::{EventfdFlags, eventfd};
    let tell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok((tell.try_clone()?, tell))
}

#[cfg(not(target_os = "linux"))]
fn wire() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
    let (hear, tell) = rustix::pipe::pipe()?;
    for end in [&hear, &tell] {
        fcntl_setfd(end, FdFlags::CLOEXEC)?;
        ioctl_fionbio(end, true)?;
    }
    Ok((hear, tell))
}
