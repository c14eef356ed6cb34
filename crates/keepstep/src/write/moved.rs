//! Where records are now that had to be written again at another place.
//!
//! A record is moved if its segment is given up before it was synced. Records that were encoded before that, and are
//! still in the queue, may name its old place; those that are encoded later do not. So moves are kept for some
//! faults. A record that was encoded before those is refused, and its caller records it again. However long a disk
//! fails, a record has one entry here.

use std::collections::{HashMap, VecDeque};

use keepstep_format::frame::{Place, Reference};

/// For how many faults moves are kept: a record that was encoded before them is refused.
const FAULTS_KEPT: usize = 8;

/// A segment and an offset in it.
type At = (u64, u64);

/// The moves of a log.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// By fault, the newest last.
    groups: VecDeque<Group>,
    /// Records that were encoded in this generation, or before, may name a place that is forgotten.
    forgotten: Option<u64>,
}

#[derive(Debug)]
struct Group {
    /// Records that were encoded in this generation, or before, may name these places.
    generation: u64,
    /// True if all callers know where the records are now, and the records stay there.
    is_settled: bool,
    places: HashMap<At, At>,
}

impl Moves {
    /// Begins a fault: records that were encoded up to this generation may name old places.
    pub(super) fn begin(&mut self, generation: u64) {
        match self.groups.back_mut() {
            Some(group) if !group.is_settled => group.generation = generation,
            _ => self.groups.push_back(Group { generation, is_settled: false, places: HashMap::new() }),
        }
        if self.groups.len() > FAULTS_KEPT {
            self.forgotten = self.groups.pop_front().map(|group| group.generation);
        }
    }

    /// Notes that the record known at one place is at another now, until it is moved again.
    pub(super) fn put(&mut self, known_at: At, now_at: At) {
        if let Some(group) = self.groups.back_mut() {
            group.places.insert(known_at, now_at);
        }
    }

    /// Notes that the moved records stay where they are.
    pub(super) fn settle(&mut self) {
        if let Some(group) = self.groups.back_mut() {
            group.is_settled = true;
        }
    }

    /// True if a record of this generation may name a place whose move is forgotten.
    pub(super) fn has_forgotten(&self, generation: u64) -> bool {
        self.forgotten.is_some_and(|forgotten| generation <= forgotten)
    }

    /// The reference with a place that does not change any more, if there is one.
    pub(super) fn settled(&self, reference: Reference) -> Reference {
        self.look(reference, |group| group.is_settled)
    }

    /// The references with the present places; `None` if nothing was moved.
    pub(super) fn now(&self, references: &[Reference]) -> Option<Vec<Reference>> {
        if self.groups.is_empty() {
            return None;
        }
        Some(references.iter().map(|reference| self.look(*reference, |_| true)).collect())
    }

    fn look(&self, reference: Reference, counts: impl Fn(&Group) -> bool) -> Reference {
        let at = (reference.place.segment, reference.place.offset);
        let mut groups = self.groups.iter().rev().filter(|group| counts(group));
        let Some((segment, offset)) = groups.find_map(|group| group.places.get(&at).copied()) else {
            return reference;
        };
        Reference { place: Place { segment, offset, ..reference.place }, ..reference }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(segment: u64, offset: u64) -> Reference {
        let place = Place { segment, offset, inner: 3, base: 1 };
        Reference { place, take: 2, hash: [7; 16] }
    }

    fn len(moves: &Moves) -> usize {
        moves.groups.iter().map(|group| group.places.len()).sum()
    }

    /// The table grew by an entry for each record at each try, for as long as the disk failed, and for ever.
    #[test]
    fn a_record_has_one_entry_however_often_it_is_tried_and_faults_are_forgotten() {
        const RECORDS: u64 = 50;
        let mut moves = Moves::default();
        for fault in 0..1000 {
            for tries in 0..20 {
                moves.begin(fault * 20 + tries);
                for record in 0..RECORDS {
                    moves.put((fault, record), (1_000_000 + fault * 20 + tries, record));
                }
                assert!(len(&moves) <= RECORDS as usize * FAULTS_KEPT);
            }
            let last = to(1_000_000 + fault * 20 + 19, 7);
            assert_eq!(moves.settled(to(fault, 7)), to(fault, 7), "it may move again");
            assert_eq!(moves.now(&[to(fault, 7)]), Some(vec![last]));
            moves.settle();
            assert_eq!(moves.settled(to(fault, 7)), last);
            assert!(!moves.has_forgotten(fault * 20), "what was on its way before can be written");
            if let Some(old) = fault.checked_sub(FAULTS_KEPT as u64) {
                assert!(
                    moves.has_forgotten(old * 20 + 19) && moves.now(&[to(old, 7)]) == Some(vec![to(old, 7)])
                );
            }
        }
    }
}
