//! Reading a stream, and freezing it so that everybody agrees on what is in it.
//!
//! In this order: say that it is being closed, tell all who put entries, read, copy what is not known to be synced, publish
//! the list. Whoever dies on the way leaves nothing that the next one cannot finish; the first list holds.

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
use crate::write::Writer;

/// What a stream holds.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamView {
    /// Ids and values, in the order of their time.
    pub entries: Vec<(String, Value)>,
    /// Ids that were put with several values; they are not among the entries.
    pub conflicts: Vec<Conflict>,
    /// Entries that cannot be read any more, or places where some may have stood.
    pub lost: Vec<LostEntry>,
    /// Nothing can be added or taken away any more.
    pub is_frozen: bool,
    /// The stream was dropped: it shows nothing.
    pub is_hidden: bool,
}

/// One id, several values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conflict {
    /// The entry's id.
    pub id: String,
    /// What was put under it, and by which writer, in the order of their time.
    pub values: Vec<(Id, Value)>,
}

/// What was found to freeze.
struct ToFreeze {
    entries: Vec<StreamEntry>,
    conflicts: Vec<StreamEntry>,
    lost: Vec<LostPlace>,
}

impl Stream {
    /// What is in the stream now, by whomever it was put: all that was acknowledged, and perhaps what is about to be.
    pub fn read(&self) -> Result<StreamView> {
        self.store.check_process()?;
        let (files, storage) = (&self.shared.files, &self.shared.storage);
        if files.is_dropped(storage)? {
            return Ok(StreamView { is_hidden: true, ..StreamView::default() });
        }
        if let Some(card) = files.read_freeze(storage)? {
            return self.read_frozen(&card);
        }
        let mut set = EntrySet::default();
        let lost = self.collect(&mut |entry| set.add(entry))?;
        let (entries, conflicts) = set.finish();
        Ok(StreamView { lost, ..view(entries, conflicts) })
    }

    /// Closes the stream for good, and gives what is in it: every entry that was ever acknowledged. Later ones get
    /// `Fenced`. Freezing again gives the same. Damage that may have taken an entry is an error, and the stream is closed
    /// but not frozen.
    pub fn freeze(&self) -> Result<StreamView> {
        self.freeze_with(false)
    }

    /// As [`Stream::freeze`], but goes on without what was lost to damage: the view tells of it, also later.
    pub fn freeze_without_lost(&self) -> Result<StreamView> {
        self.freeze_with(true)
    }

    fn freeze_with(&self, goes_on: bool) -> Result<StreamView> {
        self.store.check_process()?;
        let (files, storage) = (&self.shared.files, &self.shared.storage);
        self.refuse_hidden()?;
        if let Some(card) = files.read_freeze(storage)? {
            // Whoever published it may have died before the name was safe.
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
        if files.publish_freeze(storage, &writer, &card)? {
            return self.read_frozen(&card);
        }
        let first = files.read_freeze(storage)?;
        self.read_frozen(&first.ok_or_else(|| Error::NotFound { what: format!("the freeze of {self:?}") })?)
    }

    /// Hides the stream from all who read. Its records stay until `prune` deletes them; later entries get `Fenced`.
    pub fn hide(&self) -> Result<()> {
        self.store.check_process()?;
        let (files, storage) = (&self.shared.files, &self.shared.storage);
        if files.is_dropped(storage)? {
            return files.sync_names(storage);
        }
        let writer = self.store.writer()?.id();
        files.begin_closing(storage, &writer)?;
        files.post_to_all(storage, &writer)?;
        files.publish_drop(storage)
    }

    fn refuse_hidden(&self) -> Result<()> {
        if !self.shared.files.is_dropped(&self.shared.storage)? {
            return Ok(());
        }
        Err(Error::Ended { what: format!("stream {:?}", self.name()), why: "dropped".to_owned() })
    }

    /// The logs of all who put entries, also where they do not say yet that they are synced.
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

    /// Everything that was put so far, and what is lost of it.
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

    /// What a freeze is about. Damage is an error unless it was said to go on, since it may have taken an entry that was
    /// acknowledged.
    fn entries_to_freeze(&self, goes_on: bool) -> Result<ToFreeze> {
        let mut set = EntrySet::default();
        let lost = self.collect(&mut |mut entry| {
            // Only what is copied needs its value: a stream may be larger than the memory.
            if entry.is_settled {
                entry.value = Value::Null;
            }
            set.add(entry);
        })?;
        match lost.first() {
            Some(lost) if !goes_on => Err(lost.to_error()),
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

    /// Puts what is not known to be synced into this process's log, and says under which sequences it stands there.
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

    /// The copies in this process's own log, read back: what a freeze rests on can be read.
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

    /// What a frozen stream holds: what its card lists, and nothing else.
    fn read_frozen(&self, card: &FreezeCard) -> Result<StreamView> {
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
        Ok(StreamView { lost, is_frozen: true, ..view(entries, conflicts) })
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

fn view(entries: Vec<StreamEntry>, conflicts: Vec<StreamEntry>) -> StreamView {
    let mut by_id: BTreeMap<String, Vec<(Id, Value)>> = BTreeMap::new();
    for entry in conflicts {
        by_id.entry(entry.id).or_default().push((entry.writer, entry.value));
    }
    let conflicts = by_id.into_iter().map(|(id, values)| Conflict { id, values }).collect();
    let entries = entries.into_iter().map(|entry| (entry.id, entry.value)).collect();
    StreamView { entries, conflicts, ..StreamView::default() }
}
