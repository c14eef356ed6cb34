//! How many bytes the records of some episodes take.

use std::collections::BTreeSet;
use std::sync::Arc;

use keepstep_format::Id;

use crate::error::Result;
use crate::segment::record::load;
use crate::segment::window::RECORD_BYTES;
use crate::segment::{Contents, ScanUnsealed, Segment, Storage};
use crate::tend::verify::open_logs;

/// The bytes of all frames that hold records of these episodes. Frames that cannot be read count as 0.
pub(super) fn bytes_of(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    episodes: &BTreeSet<Id>,
) -> Result<u64> {
    let mut bytes = 0;
    for log in open_logs(storage, scan)? {
        for segment in log.segments() {
            let Some(head) = segment.head() else { continue };
            let offsets = offsets(storage, segment, episodes)?;
            if offsets.is_empty() {
                continue;
            }
            let mut window = storage.window(log.writer(), segment.number, RECORD_BYTES)?;
            for offset in offsets.into_iter().filter(|offset| segment.exists_at(*offset)) {
                bytes += load(&mut window, head.salt, head.number, offset).map_or(0, |record| record.bytes);
            }
        }
    }
    Ok(bytes)
}

fn offsets(storage: &Storage, segment: &Segment, episodes: &BTreeSet<Id>) -> Result<BTreeSet<u64>> {
    let mut offsets = BTreeSet::new();
    match segment.contents() {
        Contents::Sealed(index) => {
            for entry in index.entries().filter(|entry| episodes.contains(&entry.id)) {
                let places = index.places(storage, entry)?.unwrap_or_default();
                offsets.extend(places.into_iter().map(|(offset, _)| offset));
            }
        }
        Contents::Open(scanned) => {
            let entries = scanned.entries.iter().filter(|entry| episodes.contains(&entry.bind.id));
            offsets.extend(entries.flat_map(|entry| &entry.records).map(|record| record.offset));
        }
        Contents::Unreadable(_) => {}
    }
    Ok(offsets)
}
