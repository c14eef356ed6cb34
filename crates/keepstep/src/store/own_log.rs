//! The log of this process. It is made at the first record, and again if another process closed it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields};

use crate::error::Result;
use crate::own::{self, Home, Mail, Mailbox};
use crate::store::place::Place;
use crate::write::{self, Beat, LookUp, News, OnClose, Wakers, Writer};

/// The writer of this process, if it has one.
#[derive(Default)]
pub(in crate::store) struct OwnLog {
    /// Made when the first episode is recorded; a process that only reads has none.
    writer: Mutex<Option<Arc<Writer>>>,
    pub(in crate::store) wakers: Arc<Wakers>,
}

impl OwnLog {
    pub(in crate::store) fn current(&self) -> Option<Arc<Writer>> {
        self.lock().clone()
    }

    /// The writer. If there is none, or its log was closed by another process, a new one is made if `may_start`
    /// allows it.
    pub(in crate::store) fn writer(
        &self,
        place: &Place,
        may_start: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<Writer>> {
        let mut current = self.lock();
        if let Some(writer) = current.as_ref().filter(|writer| !writer.is_closed_by_others()) {
            return Ok(Arc::clone(writer));
        }
        may_start()?;
        let writer = Arc::new(self.start(place)?);
        *current = Some(Arc::clone(&writer));
        Ok(writer)
    }

    fn start(&self, place: &Place) -> Result<Writer> {
        let (mut home, lock) = Home::create(&place.disk, &place.id, &place.key)?;
        let writer = home.writer;
        let mut mailbox = Mailbox::new(Arc::clone(&place.cards), writer);
        let look_up: LookUp = Box::new(move || {
            let news = |mail| match mail {
                Mail::Claimed { id, attempt } => News::Claimed { id, attempt },
                Mail::Closed => News::Closed,
            };
            Ok(mailbox.look()?.into_iter().map(news).collect())
        });
        let identity = write::Identity {
            disk: Arc::clone(&place.disk),
            store: place.id,
            writer,
            strongest: place.strongest,
            lock: Some(lock as Arc<dyn Send + Sync>),
            on_close: Some(leave_scan_card(place, writer)),
        };
        home.beat();
        let beat: Beat = Box::new(move || home.beat());
        Writer::start(identity, place.key.clone(), &place.options, look_up, beat, Arc::clone(&self.wakers))
    }

    /// Writes everything that waits, and seals the log. A writer that is just being made is closed too.
    pub(in crate::store) fn close(&self) {
        let writer = self.lock();
        if let Some(writer) = &*writer {
            writer.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Writer>>> {
        // A panic cannot leave this value half-changed.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer that closes normally records how long its last segment is, so that a later cut is noticed.
fn leave_scan_card(place: &Place, writer: Id) -> OnClose {
    let (disk, key, store) = (Arc::clone(&place.disk), place.key.clone(), place.id);
    Box::new(move |number, bytes| {
        let path = format!("scans/{writer}.{number}");
        let body = own::encode_fields(
            &key,
            &[
                (fields::TIME, Value::Int(disk.now_us())),
                (fields::WRITER, Value::bytes(writer.0)),
                (fields::SEGMENT, Value::Int(number as i64)),
                (fields::FILE_BYTES, Value::Int(bytes as i64)),
            ],
        );
        let card = card::Card::encode(&store, &path, card::kind::SCAN, &body);
        // The segment is readable without the card.
        let _ = disk.put(&path, &card);
    })
}
