//! What this process knows of a run's plan. Its threads share it, so that each gets other work.

pub(in crate::store) mod queue;
pub(in crate::store) mod repeats;
pub(in crate::store) mod tasks;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::Id;

use crate::process::Process;
use crate::store::name::EpisodeName;
use crate::store::planned::queue::Queue;
use crate::store::planned::repeats::Scorings;
use crate::store::planned::tasks::Plan;

/// How many plan caches are kept for the next handle of their run. They have what this process tried, and when: a limit
/// that counts for a process must not begin anew with a handle.
const KEPT_MAX: usize = 8;

/// The plan caches of the runs that are open or were used last, and the unused claims of this process.
#[derive(Debug, Default)]
pub(in crate::store) struct PlanCaches {
    process: Process,
    open: Mutex<HashMap<Id, Weak<PlanCache>>>,
    /// The newest first.
    kept: Mutex<VecDeque<Arc<PlanCache>>>,
    idle: Mutex<Vec<Held>>,
}

/// What this process knows of one run's plan.
#[derive(Debug, Default)]
pub(in crate::store) struct PlanCache {
    plan: Mutex<Plan>,
    queue: Mutex<Queue>,
    pub(in crate::store) scorings: Scorings,
}

/// An attempt that this process has claimed and not begun.
#[derive(Debug, Clone)]
pub(in crate::store) struct Held {
    pub(in crate::store) generation_id: Id,
    pub(in crate::store) episode: Id,
    pub(in crate::store) name: EpisodeName,
    /// The attempt that is claimed.
    pub(in crate::store) attempt: u32,
    /// How many attempts began before it.
    pub(in crate::store) attempts: u32,
    pub(in crate::store) why: Arc<str>,
    /// True if opening it was tried and failed, so its state is unknown.
    pub(in crate::store) is_tried: bool,
    /// How often a job was dropped before its episode was begun.
    pub(in crate::store) returned: u32,
    /// The writer that claimed it.
    pub(in crate::store) writer: Option<Id>,
}

impl PlanCaches {
    /// The plan cache of the run with this generation id.
    pub(in crate::store) fn of(&self, generation_id: &Id) -> Arc<PlanCache> {
        if !self.process.is_this() {
            // A forked child: this cache is refused when it is used. The list must not be locked, since a thread that
            // does not exist here may hold the lock.
            return Arc::default();
        }
        let mut open = lock(&self.open);
        let plan_cache = open.get(generation_id).and_then(Weak::upgrade).unwrap_or_else(|| {
            open.retain(|_, plan_cache| plan_cache.strong_count() > 0);
            let plan_cache = Arc::new(PlanCache::default());
            open.insert(*generation_id, Arc::downgrade(&plan_cache));
            plan_cache
        });
        let mut kept = lock(&self.kept);
        kept.retain(|it| !Arc::ptr_eq(it, &plan_cache));
        kept.push_front(Arc::clone(&plan_cache));
        kept.truncate(KEPT_MAX);
        plan_cache
    }

    /// Keeps a claim for the next caller of this process. On disk it stays ours.
    pub(in crate::store) fn give_back(&self, held: Held) {
        // A forked child has no claims.
        if self.process.is_this() {
            lock(&self.idle).push(held);
        }
    }

    /// An unused claim of this run that is wanted.
    pub(in crate::store) fn take(
        &self,
        generation_id: &Id,
        is_wanted: impl Fn(&Held) -> bool,
    ) -> Option<Held> {
        let mut idle = lock(&self.idle);
        let at = idle.iter().position(|held| held.generation_id == *generation_id && is_wanted(held))?;
        Some(idle.remove(at))
    }

    /// All unused claims of this run.
    pub(in crate::store) fn idle(&self, generation_id: &Id) -> Vec<Held> {
        lock(&self.idle).iter().filter(|held| held.generation_id == *generation_id).cloned().collect()
    }
}

impl PlanCache {
    pub(in crate::store) fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    pub(in crate::store) fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks guard caches only: the truth is in storage, and is read again.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
