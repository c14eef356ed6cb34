//! Freezes a stream, so that all readers agree on its entries.
//!
//! The order: announce the freeze, post to all writers of the stream, read, copy what may not be synced, publish the
//! list. If the process dies on the way, the next one can finish. The first list that is published counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use keepstep_format::frame::Kind;
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use crate::error::{Error, Result};
use crate::own::streams::{COPIED, EntryPlace, FreezeCard, LostPlace, PUT};
use crate::read::{Catalog, EntrySet, LostEntry, StreamEntry, stream_bind, stream_entries};
use crate::recover::Recovery;
use crate::store::stream::Stream;
use crate::store::stream::view::{All, StreamView};
use crate::write::Writer;

/// What a freeze found.
struct ToFreeze {
    entries: Vec<StreamEntry>,
    conflicts: Vec<StreamEntry>,
    lost: Vec<LostPlace>,
}

impl Stream {
    /// Freezes the stream for good, and returns its entries: every entry that was ever acknowledged. Later entries
    /// get `Fenced`. Freezing again returns the same. If damage may have removed an entry, this is an error, and the
    /// stream stays closed but not frozen.
    pub fn freeze(&self) -> Result<StreamView> {
        self.freeze_with(false)
    }

    /// As [`Stream::freeze`], but leaves out entries that were lost to damage. The view reports them, also later.
    pub fn freeze_without_lost(&self) -> Result<StreamView> {
        self.freeze_with(true)
    }

    fn freeze_with(&self, goes_on: bool) -> Result<StreamView> {
        self.store.check_open()?;
        let (files, storage) = (&self.shared.files, &self.shared.storage);
        self.refuse_hidden()?;
        if let Some(card) = files.read_freeze(storage)? {
            // The process that published it may have died before it synced the name.
            files.sync_names(storage)?;
            return self.read_frozen(&card);
        }
        let own = self.store.writer()?;
        let writer = own.id();
        files.begin_closing(storage, &writer)?;
        let reads_first = self.store.inner.place.options.is_broken_freeze_reads_first();
        let early = if reads_first { Some(self.entries_to_freeze(goes_on)?) } else { None };
        files.post_to_all(storage, &writer)?;
        let ToFreeze { entries, conflicts, lost } = match early {
            Some(early) => early,
            None => self.entries_to_freeze(goes_on)?,
        };
        let copies = self.copy_unsettled(&own, entries.iter().chain(&conflicts))?;
        let places = |entries: &[StreamEntry]| -> Result<Vec<EntryPlace>> {
            entries.iter().map(|entry| self.place_of(entry, &copies, &writer)).collect()
        };
        let card = FreezeCard { entries: places(&entries)?, conflicts: places(&conflicts)?, lost };
        drop((entries, conflicts));
        self.store.inner.streams.forget(&self.shared);
        if files.publish_freeze(storage, &writer, &card)? {
            return self.read_frozen(&card);
        }
        let first = files.read_freeze(storage)?;
        self.read_frozen(&first.ok_or_else(|| Error::NotFound { what: format!("the freeze of {self:?}") })?)
    }

    /// Hides the stream from all readers. Its records stay until `prune` deletes them; later entries get `Fenced`.
    pub fn hide(&self) -> Result<()> {
        self.store.check_open()?;
        let (files, storage) = (&self.shared.files, &self.shared.storage);
        if files.is_dropped(storage)? {
            return files.sync_names(storage);
        }
        let writer = self.store.writer()?.id();
        files.begin_closing(storage, &writer)?;
        files.post_to_all(storage, &writer)?;
        self.store.inner.streams.forget(&self.shared);
        files.publish_drop(storage)
    }

    fn refuse_hidden(&self) -> Result<()> {
        if !self.shared.files.is_dropped(&self.shared.storage)? {
            return Ok(());
        }
        Err(Error::Ended { what: format!("stream {:?}", self.name()), why: "dropped".to_owned() })
    }

    /// The logs of all writers of the stream, including parts that may not be synced.
    fn dirty_catalog(&self, writers: &[Id]) -> Result<Catalog> {
        let scan = if self.store.inner.place.options.is_broken_freeze_reads_clean() {
            self.store.recovery()
        } else {
            Arc::new(Recovery::dirty())
        };
        let mut catalog = Catalog::unread(Arc::clone(&self.shared.storage), scan);
        catalog.refresh_of(writers)?;
        Ok(catalog)
    }

    /// All entries that were put so far, and those that are lost.
    fn collect(&self, each: &mut dyn FnMut(StreamEntry)) -> Result<Vec<LostEntry>> {
        let writers = self.shared.files.claimants(&self.shared.storage)?;
        let catalog = self.dirty_catalog(&writers)?;
        let bind = stream_bind(&self.id(), PUT);
        let mut lost = Vec::new();
        for writer in &writers {
            lost.extend(stream_entries(&catalog, writer, &bind, 0, each)?);
        }
        Ok(lost)
    }

    /// The entries to freeze. Damage is an error unless `goes_on` is true, since it may have removed an acknowledged
    /// entry.
    fn entries_to_freeze(&self, goes_on: bool) -> Result<ToFreeze> {
        let mut set = EntrySet::default();
        let lost = self.collect(&mut |mut entry| {
            // Only entries that are copied need their value: a stream may be larger than the memory.
            if entry.is_settled {
                entry.value = Value::Null;
            }
            set.add(entry);
        })?;
        match lost.first() {
            Some(lost) if !goes_on => {
                let found =
                    format!("{}; the stream takes no more entries, and is not frozen yet", lost.found);
                Err(LostEntry { found, ..lost.clone() }.to_error())
            }
            _ => {
                let (entries, conflicts) = set.finish();
                let lost = lost.into_iter().map(|LostEntry { writer, path, offset, found }| LostPlace {
                    writer,
                    path,
                    offset,
                    found,
                });
                Ok(ToFreeze { entries, conflicts, lost: lost.collect() })
            }
        }
    }

    /// Copies entries that may not be synced into this process's log, and returns their sequence numbers there.
    fn copy_unsettled<'e>(
        &self,
        writer: &Arc<Writer>,
        entries: impl Iterator<Item = &'e StreamEntry>,
    ) -> Result<HashMap<(String, Hash), u32>> {
        let copies_nothing = self.store.inner.place.options.is_broken_freeze_copies_nothing();
        let unsettled: Vec<_> = entries.filter(|entry| !entry.is_settled && !copies_nothing).collect();
        if unsettled.is_empty() {
            return Ok(HashMap::new());
        }
        let putter = self.new_putter(Arc::clone(writer), COPIED, self.store.inner.place.strongest);
        let mut receipts = Vec::with_capacity(unsettled.len());
        for entry in unsettled {
            let fields = [
                (fields::TIME, Value::Int(entry.time)),
                (fields::NAME, Value::from(entry.id.as_str())),
                (fields::VALUE, entry.value.clone()),
            ];
            receipts.push(putter.append_waiting(Kind::Put, &fields)?);
        }
        receipts.iter().try_for_each(|receipt| receipt.wait())?;
        self.copies(&writer.id())
    }

    /// Reads the copies in this process's own log back, to prove that they can be read.
    fn copies(&self, own: &Id) -> Result<HashMap<(String, Hash), u32>> {
        let mut catalog = Catalog::unread(Arc::clone(&self.shared.storage), Arc::new(Recovery::dirty()));
        catalog.refresh_of(&[*own])?;
        let mut copies = HashMap::new();
        stream_entries(&catalog, own, &stream_bind(&self.id(), COPIED), 0, &mut |entry| {
            copies.insert((entry.id, entry.hash), entry.seq);
        })?;
        Ok(copies)
    }

    fn place_of(
        &self,
        entry: &StreamEntry,
        copies: &HashMap<(String, Hash), u32>,
        own: &Id,
    ) -> Result<EntryPlace> {
        let StreamEntry { id, hash, writer, seq, .. } = entry;
        let (name, hash) = (id.clone(), *hash);
        if entry.is_settled || self.store.inner.place.options.is_broken_freeze_copies_nothing() {
            return Ok(EntryPlace { name, writer: *writer, seq: *seq, hash, copied: false });
        }
        match copies.get(&(name.clone(), hash)) {
            Some(&seq) => Ok(EntryPlace { name, writer: *own, seq, hash, copied: true }),
            None => Err(Error::NotFound { what: format!("the copy of entry {name:?} of {self:?}") }),
        }
    }

    fn read_frozen(&self, card: &FreezeCard) -> Result<StreamView> {
        self.frozen(card).map(All::view)
    }

    /// The entries of a frozen stream: those that its card lists, and no others.
    pub(super) fn frozen(&self, card: &FreezeCard) -> Result<All> {
        let mut wanted: BTreeMap<(Id, u32), HashMap<u32, usize>> = BTreeMap::new();
        let places: Vec<&EntryPlace> = card.entries.iter().chain(&card.conflicts).collect();
        for (index, place) in places.iter().enumerate() {
            let attempt = if place.copied { COPIED } else { PUT };
            wanted.entry((place.writer, attempt)).or_default().insert(place.seq, index);
        }
        let mut writers: Vec<Id> = wanted.keys().map(|(writer, _)| *writer).collect();
        writers.dedup();
        let mut catalog = Catalog::unread(Arc::clone(&self.shared.storage), Arc::new(Recovery::dirty()));
        catalog.refresh_of(&writers)?;
        let mut found: Vec<Option<StreamEntry>> = vec![None; places.len()];
        let mut lost: Vec<LostEntry> = card.lost.iter().map(lost_before).collect();
        for ((writer, attempt), seqs) in &wanted {
            let bind = stream_bind(&self.id(), *attempt);
            stream_entries(&catalog, writer, &bind, 0, &mut |entry| {
                if let Some(&index) = seqs.get(&entry.seq)
                    && (places[index].hash, &places[index].name) == (entry.hash, &entry.id)
                {
                    found[index] = Some(entry);
                }
            })?;
        }
        for (place, found) in places.iter().zip(&found) {
            if found.is_none() {
                lost.push(lost_entry(place));
            }
        }
        let conflicts: Vec<_> = found.split_off(card.entries.len()).into_iter().flatten().collect();
        let entries = found.into_iter().flatten().collect();
        Ok(All { is_frozen: true, ..All::of(entries, conflicts, lost) })
    }
}

fn lost_before(lost: &LostPlace) -> LostEntry {
    let LostPlace { writer, path, offset, found } = lost.clone();
    LostEntry { writer, path, offset, found }
}

fn lost_entry(place: &EntryPlace) -> LostEntry {
    let (writer, path) = (place.writer, crate::segment::names::writer_dir(&place.writer));
    let found = format!("entry {:?} of a frozen stream, number {}, cannot be read", place.name, place.seq);
    LostEntry { writer, path, offset: 0, found }
}
