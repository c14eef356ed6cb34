//! The values of a stream that was read, so that reading it again takes only what is new.
//!
//! They are kept while there is a handle of the stream, and only up to a limit for each store: the streams that were
//! read last. A stream with more is read from the start each time; whoever wants only what is new of such a stream
//! takes a [`StreamReader`](super::reading::StreamReader), which keeps no values.

use std::collections::HashMap;

use keepstep_format::value::Value;

use super::Stream;
use super::reading::{Looked, Reading};
use super::view::{All, StreamView};
use crate::error::Result;
use crate::read::StreamEntry;

/// How many bytes of values a store keeps, all streams together.
pub(super) const VALUES_BYTES_MAX: usize = 64 << 20;

/// The values of a stream as of the last read.
#[derive(Default)]
pub(super) struct KeptValues {
    reading: Reading,
    values: HashMap<String, Value>,
    /// The whole of a frozen stream, in the order of its card.
    frozen: Option<StreamView>,
    bytes: usize,
}

impl Stream {
    /// The entries now, of all writers: everything that was acknowledged, and perhaps entries that are about to be.
    ///
    /// Entries that this store has read before are not read again, up to a limit of memory; damage to them does not
    /// take them away. [`Stream::freeze`] always reads all logs again.
    pub fn read(&self) -> Result<StreamView> {
        self.with_kept(|kept| kept.read(self))
    }

    /// The value of one entry now; `None` if it is not among the entries of [`Stream::read`].
    pub fn value_of(&self, id: &str) -> Result<Option<Value>> {
        self.with_kept(|kept| kept.value_of(self, id))
    }

    fn with_kept<T>(&self, read: impl FnOnce(&mut KeptValues) -> Result<T>) -> Result<T> {
        self.store.check_process()?;
        let mut kept = self.shared.kept();
        let read = read(&mut kept);
        let bytes = kept.bytes();
        drop(kept);
        self.store.inner.streams.keep_values(&self.shared, bytes);
        read
    }
}

impl KeptValues {
    /// About how much memory the values take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The entries now.
    pub(super) fn read(&mut self, stream: &Stream) -> Result<StreamView> {
        match self.reading.look(stream)? {
            Looked::All(all) => Ok(self.replaced_by(*all)),
            Looked::New(new) => {
                new.iter().for_each(|entry| self.add(entry));
                let view = self.frozen.clone().unwrap_or_else(|| self.view());
                self.keep_within_the_limit();
                Ok(view)
            }
        }
    }

    /// The value of one entry now.
    pub(super) fn value_of(&mut self, stream: &Stream, id: &str) -> Result<Option<Value>> {
        let find = |view: &StreamView| {
            view.entries.iter().find(|(found, _)| found == id).map(|(_, value)| value.clone())
        };
        match self.reading.look(stream)? {
            Looked::All(all) => Ok(find(&self.replaced_by(*all))),
            Looked::New(new) => {
                new.iter().for_each(|entry| self.add(entry));
                let found = self.frozen.as_ref().map_or_else(|| self.values.get(id).cloned(), find);
                self.keep_within_the_limit();
                Ok(found)
            }
        }
    }

    fn replaced_by(&mut self, all: All) -> StreamView {
        (self.values, self.frozen, self.bytes) = (HashMap::new(), None, 0);
        let is_whole = all.lost.is_empty() && all.conflicts.is_empty() && !all.is_hidden;
        if all.is_frozen && is_whole {
            self.bytes = all.entries.iter().map(bytes_of_entry).sum();
            let view = all.view();
            self.frozen = Some(view.clone());
            self.keep_within_the_limit();
            return view;
        }
        if is_whole {
            all.entries.iter().for_each(|entry| self.add(entry));
        }
        self.keep_within_the_limit();
        all.view()
    }

    fn add(&mut self, entry: &StreamEntry) {
        self.bytes += bytes_of_entry(entry);
        self.values.insert(entry.id.clone(), entry.value.clone());
    }

    /// All entries, in order.
    fn view(&self) -> StreamView {
        let order = |id: &str| self.reading.known.order_of(id);
        let mut in_order: Vec<_> = self.values.iter().map(|(id, value)| (order(id), id, value)).collect();
        in_order.sort_unstable_by_key(|(order, ..)| *order);
        let entries = in_order.into_iter().map(|(_, id, value)| (id.clone(), value.clone())).collect();
        StreamView { entries, ..StreamView::default() }
    }

    fn keep_within_the_limit(&mut self) {
        if self.bytes > VALUES_BYTES_MAX {
            self.clear();
        }
    }
}

fn bytes_of_entry(entry: &StreamEntry) -> usize {
    entry.id.len() + bytes_of(&entry.value)
}

/// About how much memory a value takes. What values share is counted for each of them.
fn bytes_of(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Lost(_) => 0,
        Value::Big { magnitude, .. } => magnitude.len(),
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(bytes_of).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| bytes_of(key) + bytes_of(value)).sum(),
        Value::Array(array) => array.data.len(),
        Value::Media(kind, bytes) => kind.len() + bytes.len(),
        Value::Typed(name, value) => name.len() + bytes_of(value),
        Value::Repr(name, repr) => name.len() + repr.len(),
        Value::Shared(shared) => bytes_of(&shared.value),
    };
    within + size_of::<Value>()
}
