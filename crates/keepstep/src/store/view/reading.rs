//! Reads a store: gives the readers what recovery finds.

use std::sync::Arc;

use keepstep_format::Id;

use crate::disk::Disk;
use crate::error::Result;
use crate::own;
use crate::read::{Catalog, Follow, FollowFrom};
use crate::recover::Recovery;
use crate::segment::{Liveness, Storage};
use crate::store::Store;
use crate::store::view::counting::RecordFollow;
use crate::tend::{self, HealReport, Progress, Report};

impl Store {
    /// Whether the process of a writer is alive.
    pub fn liveness(&self, writer: &Id) -> Liveness {
        own::liveness(&**self.disk(), &self.id(), writer)
    }

    /// The catalog of the store now; [`Catalog::refresh`] updates it.
    pub fn catalog(&self) -> Result<Catalog> {
        self.check_process()?;
        self.show();
        Catalog::over(self.storage(), self.recovery())
    }

    /// The records of all writers that count, as they become durable.
    pub fn follow(&self, from: FollowFrom) -> Result<RecordFollow> {
        self.check_process()?;
        Ok(RecordFollow::of_store(self, Follow::store(self.storage(), self.recovery(), from)?))
    }

    /// Reads and checks everything, and reports damage and what it cost.
    ///
    /// ```
    /// use keepstep::{Options, Store};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-verify-{}", std::process::id()));
    /// let store = Store::open(&dir, Options::default())?;
    /// let report = store.verify(&mut |_progress| {})?;
    /// assert!(report.damage.is_empty());
    /// # drop(store);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
        self.check_process()?;
        tend::verify(&self.storage_as_it_is(), &*self.recovery(), progress)
    }

    /// Looks for lost values elsewhere in the store, and publishes what it finds for all readers.
    pub fn heal(&self, progress: &mut dyn FnMut(Progress)) -> Result<HealReport> {
        self.check_open()?;
        tend::heal(&self.storage_as_it_is(), &*self.recovery(), progress)
    }

    /// Makes the records of this process visible to its own readers.
    pub(in crate::store) fn show(&self) {
        if let Some(writer) = self.current_writer() {
            writer.show();
        }
    }

    /// For readers: files that are open in this store are shared.
    pub(in crate::store) fn storage(&self) -> Arc<Storage> {
        Arc::new(self.cards().for_another())
    }

    /// For checks and moves: without files that were opened or read before.
    pub(in crate::store) fn storage_as_it_is(&self) -> Arc<Storage> {
        Arc::new(Storage::new(Arc::clone(self.disk()), self.id()))
    }

    pub(in crate::store) fn recovery(&self) -> Arc<Recovery> {
        recovery(self.disk(), self.id())
    }
}

/// Scans unsealed segments; the locks of this disk tell which writers are alive.
pub(in crate::store) fn recovery(disk: &Arc<dyn Disk>, store: Id) -> Arc<Recovery> {
    let disk = Arc::clone(disk);
    Arc::new(Recovery::new(Box::new(move |writer: &Id| own::liveness(&*disk, &store, writer))))
}
