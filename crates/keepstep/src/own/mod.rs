//! Who writes: one folder per recording process, locked while it lives, with a heartbeat and a mailbox.
//!
//! Process ids and host names are only for people. A lock is trusted only within the boot that it was taken in.

mod claims;
mod lease;
mod mailbox;
mod press;
pub(crate) mod streams;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use keepstep_format::card::{self, Beat};
use keepstep_format::decode::{self, Body, NoBodies};
use keepstep_format::encode::{Encoder, NothingKnown};
use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

pub(crate) use claims::ClaimDesk;
pub(crate) use lease::{Leases, Standing};
pub(crate) use mailbox::{Letter, Mailbox, Postman, post};
pub(crate) use press::{Press, Sheet};

use crate::disk::{self, Disk, File, LockState};
use crate::error::{Doing, Error, Result};
use crate::segment::Liveness;

/// The folder of this process.
pub(crate) struct Home {
    pub(crate) writer: Id,
    /// Whoever writes to the folder holds this until it is done.
    pub(crate) lock: Arc<HeldLock>,
    beat: Arc<dyn File>,
    counter: u64,
    disk: Arc<dyn Disk>,
}

/// A lock that is held until this is dropped, or the process ends.
pub(crate) struct HeldLock {
    writer: Id,
    _file: Arc<dyn File>,
}

/// Writers of this process: their locks must never be opened a second time, since closing would free them.
///
/// With the process they belong to: a forked child has none of its parent's locks.
static OURS: Mutex<(u32, BTreeSet<Id>)> = Mutex::new((0, BTreeSet::new()));

fn ours<T>(use_it: impl FnOnce(&mut BTreeSet<Id>) -> T) -> T {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if ours.0 != std::process::id() {
        *ours = (std::process::id(), BTreeSet::new());
    }
    use_it(&mut ours.1)
}

impl Home {
    /// Makes a folder for this process, and locks it.
    pub(crate) fn create(disk: &Arc<dyn Disk>, store: &Id, key: &ContentKey) -> Result<Self> {
        let mut random = [0; 16];
        disk.random(&mut random).doing("find a name for", "this writer")?;
        let writer = Id(random);
        let dir = format!("writers/{writer}");
        for path in ["writers", "mail", &dir, &format!("mail/{writer}")] {
            disk::ensure_dir(&**disk, path).doing("create", path)?;
        }
        let path = format!("{dir}/lock");
        let lock = disk.create_new(&path).doing("create", &path)?;
        ours(|ours| ours.insert(writer));
        let held = Arc::new(HeldLock { writer, _file: Arc::clone(&lock) });
        if !lock.try_lock().doing("lock", &path)? {
            return Err(Error::Busy { what: path, why: "another process has locked it".to_owned() });
        }
        let content = lock_card(&**disk, store, &path, key);
        lock.write_at(&content, 0).and_then(|()| lock.sync()).doing("write", &path)?;
        let path = format!("{dir}/beat");
        let beat = disk.create_new(&path).doing("create", &path)?;
        disk.sync_dir(&dir).doing("sync", &dir)?;
        Ok(Self { writer, lock: held, beat, counter: 0, disk: Arc::clone(disk) })
    }

    /// Says that this process is alive. A beat that cannot be written is one that nobody hears: no error.
    pub(crate) fn beat(&mut self) {
        self.counter += 1;
        let beat = Beat { counter: self.counter, time: self.disk.now_us() };
        let _ = self.beat.write_at(&beat.encode(), 0);
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        ours(|ours| ours.remove(&self.writer));
    }
}

fn lock_card(disk: &dyn Disk, store: &Id, path: &str, key: &ContentKey) -> Vec<u8> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let body = encode_fields(
        key,
        &[
            (fields::TIME, Value::Int(disk.now_us())),
            (fields::BOOT, Value::from(disk.boot_id())),
            (fields::PROCESS, Value::Int(i64::from(std::process::id()))),
            (fields::HOST, Value::from(host)),
        ],
    );
    card::Card::encode(store, path, card::kind::LOCK, &body)
}

/// The fields of a card, as bytes.
pub(crate) fn encode_fields(key: &ContentKey, fields: &[(u8, Value)]) -> Vec<u8> {
    let mut encoder = Encoder::fields(key, &NothingKnown);
    for (number, value) in fields {
        encoder.field(*number);
        // Cards are made here, of values that are neither deep nor lost.
        let _ = encoder.put(value);
    }
    encoder.finish().body
}

/// The fields of a card.
pub(crate) fn decode_fields(body: Vec<u8>) -> Option<Vec<(u8, Value)>> {
    decode::read_fields(&Body { raw: body, references: Vec::new() }, &mut NoBodies).ok()
}

/// Whether a writer's process is still there.
pub(crate) fn liveness(disk: &dyn Disk, store: &Id, writer: &Id) -> Liveness {
    if ours(|ours| ours.contains(writer)) {
        return Liveness::Live;
    }
    let path = format!("writers/{writer}/lock");
    let Ok(file) = disk.open_rw(&path).or_else(|_| disk.open(&path)) else { return Liveness::Unknown };
    let boot = disk::read_file(disk, &path)
        .ok()
        .and_then(|data| card::Card::decode(&data, store, &path).ok())
        .and_then(|card| decode_fields(card.body))
        .and_then(|fields| fields.into_iter().find(|(number, _)| *number == fields::BOOT))
        .and_then(|(_, value)| value.as_str().map(str::to_owned));
    let boot_now = disk.boot_id();
    match file.lock_state() {
        // A lock that is held is held, whatever the card says.
        Ok(LockState::Held) => Liveness::Live,
        Ok(LockState::Free) if boot.is_some_and(|boot| boot == boot_now && !boot.is_empty()) => {
            Liveness::Dead
        }
        _ => Liveness::Unknown,
    }
}
