//! Writers: one folder for each recording process, locked while it lives, with a heartbeat and a mailbox.
//!
//! Process ids and host names are only for people. Whether a writer lives is evidence, and nothing depends on it: a
//! process that acts on another's log posts to its mailbox first, and the owner finds that letter before it
//! acknowledges anything more.

mod claims;
pub(crate) mod closing;
mod lease;
mod mailbox;
pub(crate) mod streams;

use std::io;
use std::sync::{Arc, Weak};

use keepstep_format::card::{self, Beat};
use keepstep_format::decode::{self, Body, NoBodies};
use keepstep_format::encode::{Encoder, NothingKnown};
use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

pub(crate) use claims::{ClaimBatcher, NewClaim};
pub(crate) use lease::{Leases, OwnerState};
pub(crate) use mailbox::{FenceNotice, Mail, Mailbox, NoticePoster};

use crate::disk::{self, Disk, HeldLock, LockState};
use crate::error::{Doing, Error, Result};
use crate::segment::Liveness;
use crate::segment::names::writer_dir;

/// The folder of this process.
pub(crate) struct Home {
    pub(crate) writer: Id,
    /// Held by the code that writes to the folder, until it is done.
    lock: Weak<dyn HeldLock>,
    beat: Box<dyn disk::Beat>,
    counter: u64,
    disk: Arc<dyn Disk>,
}

impl Home {
    /// Makes a folder for this process. It is locked until the lock is dropped.
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        store: &Id,
        key: &ContentKey,
    ) -> Result<(Self, Arc<dyn HeldLock>)> {
        let mut random = [0; 16];
        disk.random(&mut random).doing("find a name for", "this writer")?;
        let writer = Id(random);
        let dir = format!("writers/{writer}");
        for path in [&dir, &format!("mail/{writer}")] {
            disk.make_folder(path).doing("create", path)?;
        }
        let path = format!("{dir}/lock");
        let content = lock_card(&**disk, store, &path, key);
        let (held, beat) = match disk.enter(&path, &content, &format!("{dir}/beat")) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::Busy { what: path, why: "another process has locked it".to_owned() });
            }
            entered => entered.doing("lock", &path)?,
        };
        let lock = Arc::downgrade(&held);
        Ok((Self { writer, lock, beat, counter: 0, disk: Arc::clone(disk) }, held))
    }

    /// Writes a heartbeat. If that fails, it is only not seen: no error.
    pub(crate) fn beat(&mut self) {
        // Code that has left the folder gives no more sign of life in it.
        let Some(lock) = self.lock.upgrade() else { return };
        self.counter += 1;
        let beat = Beat { counter: self.counter, time: self.disk.now_us() };
        let _ = self.beat.say(&beat.encode());
        // Other code in this process may have opened and closed the file, which frees the lock.
        let _ = lock.renew();
    }
}

fn lock_card(disk: &dyn Disk, store: &Id, path: &str, key: &ContentKey) -> Vec<u8> {
    let body = encode_fields(key, &about_this_process(disk));
    card::Card::encode(store, path, card::kind::LOCK, &body)
}

fn about_this_process(disk: &dyn Disk) -> Vec<(u8, Value)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![
        (fields::TIME, Value::Int(disk.now_us())),
        (fields::BOOT, Value::from(disk.boot_id())),
        (fields::PROCESS, Value::Int(i64::from(std::process::id()))),
        (fields::HOST, Value::from(host)),
    ]
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

/// What the lock of a writer tells.
pub(crate) enum LockTells {
    /// It is held.
    Live,
    /// It is free, and this is why its writer counts as gone.
    Dead(&'static str),
    /// It is free or missing, and it is unknown whether it was held in this boot.
    Nothing,
    /// It could not be checked, which says nothing about its writer.
    Failed,
}

/// Good evidence, but no proof: a lock can be lost.
pub(crate) const SAME_BOOT: &str = "its lock is free, in the same boot";

/// Looks at a writer's lock.
pub(crate) fn look_at_lock(disk: &dyn Disk, store: &Id, writer: &Id) -> LockTells {
    match disk.lock_state(&lock_path(writer)) {
        Ok(LockState::Held) => return LockTells::Live,
        Ok(LockState::Free) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return without_a_lock(disk, writer),
        Err(_) => return LockTells::Failed,
    }
    let told = match read_lock(disk, store, writer) {
        Ok(told) => told,
        // It was renewed since.
        Err(error) if error.kind() == io::ErrorKind::Deadlock => return LockTells::Live,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return LockTells::Failed,
    };
    let boot = told.as_deref().and_then(|told| find(told, fields::BOOT)?.as_str());
    let now = disk.boot_id();
    match boot {
        Some(boot) if boot.is_empty() || now.is_empty() => LockTells::Nothing,
        Some(boot) if boot == now => LockTells::Dead(SAME_BOOT),
        // Stores are on local file systems: no process of another boot is left.
        Some(_) => LockTells::Dead("the machine was started again since"),
        None => LockTells::Nothing,
    }
}

/// The lock is made with its folder, before anything else: if both are gone, no writer can continue there.
fn without_a_lock(disk: &dyn Disk, writer: &Id) -> LockTells {
    match disk.exists(&writer_dir(writer)) {
        Ok(true) => LockTells::Nothing,
        Ok(false) => LockTells::Dead("its folder is gone"),
        Err(_) => LockTells::Failed,
    }
}

/// Whether a writer's process is alive, according to its lock.
pub(crate) fn liveness(disk: &dyn Disk, store: &Id, writer: &Id) -> Liveness {
    match look_at_lock(disk, store, writer) {
        LockTells::Live => Liveness::Live,
        LockTells::Dead(_) => Liveness::Dead,
        LockTells::Nothing | LockTells::Failed => Liveness::Unknown,
    }
}

fn lock_path(writer: &Id) -> String {
    format!("writers/{writer}/lock")
}

/// What a writer recorded about itself when it took its lock; `None` if it cannot be decoded.
fn read_lock(disk: &dyn Disk, store: &Id, writer: &Id) -> io::Result<Option<Vec<(u8, Value)>>> {
    let path = lock_path(writer);
    let data = disk.get(&path)?;
    let card = card::Card::decode(&data, store, &path).ok();
    Ok(card.and_then(|card| decode_fields(card.body)))
}

fn find(told: &[(u8, Value)], number: u8) -> Option<&Value> {
    told.iter().find(|(found, _)| *found == number).map(|(_, value)| value)
}

/// A writer as a text for people: its process and host.
pub(crate) fn describe(disk: &dyn Disk, store: &Id, writer: &Id) -> String {
    let told = match read_lock(disk, store, writer) {
        // It is this process.
        Err(error) if error.kind() == io::ErrorKind::Deadlock => about_this_process(disk),
        told => told.ok().flatten().unwrap_or_default(),
    };
    let process = find(&told, fields::PROCESS).and_then(Value::as_int);
    let host = find(&told, fields::HOST).and_then(|value| value.as_str());
    match (process, host) {
        (Some(process), Some(host)) => format!("process {process} on {host} (writer {writer})"),
        _ => format!("writer {writer}"),
    }
}
