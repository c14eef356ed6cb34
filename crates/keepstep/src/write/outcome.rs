//! Tells the callers of a batch what became of it: acknowledged, refused, or failed.

use std::sync::Arc;

use keepstep_format::frame::Kind;

use super::decide::Round;
use super::event::Stage;
use super::log::LogWriter;
use super::open_segment::Placed;
use super::subject::Subject;
use crate::error::Error;

/// A batch of up to this many is woken by relay, so that the next sync begins at once and the disk is never idle.
/// Larger batches keep the processors busy for longer than a sync: then fewer, larger batches cost less, and waking
/// all of them here causes that.
const RELAY_MEMBERS_MAX: usize = 64;

impl LogWriter {
    /// The batch is durable: remembers its values, and acknowledges it.
    pub(super) fn acknowledge(&mut self, mut round: Round) {
        for member in &round.members {
            let placed = &round.placed[member.record];
            let Some(subject) = &placed.subject else { continue };
            if let Some(fenced) = self.fence_of(subject) {
                // What the handle knows of itself goes back to what was recorded.
                subject.next_epoch(member.epoch, &fenced);
                round.event.fail(member.index, fenced);
            } else {
                tell(subject, placed);
            }
        }
        for key in &round.ended {
            self.subjects.remove(key);
        }
        if round.needs_sync {
            // In order: earlier batches are acknowledged first.
            self.all_is_synced();
        }
        // Before the callers are told: their next records may refer to these values.
        for placed in &round.placed {
            self.index.remember(placed.fresh(), placed.segment, placed.offset);
            if placed.kind == Kind::Dict {
                self.dictionary = Some((placed.segment, placed.offset));
            }
        }
        self.counters.add_batch(&round.placed);
        if round.needs_sync && !round.ended.is_empty() {
            // A caller that is told that its episode ended may tell another process to open it, which must not find
            // it busy.
            self.say_synced();
        }
        // Waiting callers continue while the rest is done here.
        self.wake(&round);
        self.counters.set_segment_bytes(self.segment.as_ref().map_or(0, |segment| segment.end));
        if round.needs_sync {
            self.buffer_pool.take_back(&mut round.placed);
        } else {
            for placed in &mut round.placed {
                placed.known_at = (placed.segment, placed.offset);
            }
            self.unsynced.push((round.placed, round.event));
        }
    }

    fn wake(&mut self, round: &Round) {
        let stage = if round.needs_sync { Stage::Power } else { Stage::Kill };
        self.wake_the_rest();
        if round.members.len() > RELAY_MEMBERS_MAX {
            return round.event.raise(stage);
        }
        round.event.raise_by_relay(stage);
        self.relayed = Some(Arc::clone(&round.event));
    }

    /// The thread that was to wake a batch had the time of a sync for it. No caller waits longer for a thread that
    /// gets no processor.
    pub(super) fn wake_the_rest(&mut self) {
        if let Some(event) = self.relayed.take() {
            event.wake_the_rest();
        }
    }

    /// A sync covers everything that was written, so earlier batches are acknowledged too.
    pub(super) fn all_is_synced(&mut self) {
        if let Some(segment) = &mut self.segment {
            segment.kept_to = segment.synced_to;
        }
        for (placed, event) in self.unsynced.drain(..) {
            if self.rewrite {
                for placed in &placed {
                    self.index.remember(placed.fresh(), placed.segment, placed.offset);
                }
            }
            event.raise(Stage::Power);
        }
        if std::mem::take(&mut self.rewrite) {
            self.moves.settle();
        }
    }

    /// The batch is not durable: its records do not count, and their sequence numbers are free again.
    pub(super) fn withdraw(&mut self, round: &Round, error: &Error) {
        self.last_failure = Some(error.clone());
        for member in round.members.iter().rev() {
            let placed = &round.placed[member.record];
            if let Some(subject) = &placed.subject {
                self.subjects.insert(subject.key, placed.seq);
                subject.next_epoch(member.epoch, error);
            }
            round.event.fail(member.index, error.clone());
        }
        round.event.close();
    }
}

/// Tells the handle of a subject what is committed.
fn tell(subject: &Subject, placed: &Placed) {
    if let Some(step) = placed.progress.part.step {
        subject.set_steps(step + 1);
    }
    if let Some(is_pending) = placed.progress.pending {
        subject.set_pending(is_pending);
    }
    if placed.kind == Kind::Begin {
        subject.set_begun();
    }
}
