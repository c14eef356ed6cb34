//! Takes an episode over: claim, post to every owner since the newest base, read, copy what may not be synced,
//! publish the base.
//!
//! The order is the proof. An owner syncs a step, then looks for our letter, then acknowledges. If the letter was not
//! there yet, the step is in what we read. If it was there, the step was not acknowledged.

use std::sync::Arc;

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use crate::counted;
use crate::error::{Doing, Error, Result};
use crate::own::FenceNotice;
use crate::read::{Catalog, Item, Lineage};
use crate::segment::cards::{Published, publish_card};
use crate::segment::chain::{Base, Chain, Link, Span, base_fields, base_path, lost_end};
use crate::segment::names::scan_path;
use crate::store::episode::Episode;
use crate::store::episode::endings::FoundEnd;
use crate::store::episode::open_episodes::Reservation;
use crate::store::episode::opening::{Opener, final_why, writers_of};
use crate::store::episode::retry::goes_on_behind;
use crate::write::{CopyOf, Start, copied_to, copy};

/// What a taker found, and what it inherits of it.
pub(in crate::store) struct Inheritance {
    source: Link,
    lineage: Lineage,
    /// From this line on, what is inherited is not known to be synced.
    unsynced: Option<usize>,
    /// Lines before this are inherited.
    cut: usize,
    /// How the source ended, if the episode is over by that.
    adopted: Option<String>,
    /// True if it was over, and is resumed on request.
    goes_on: bool,
    has_ended: bool,
    /// How many of the source's own records count, inherited or not.
    counted: u32,
}

impl Opener<'_> {
    /// Completes the takeover of a claimed attempt.
    pub(in crate::store) fn take_over(
        &self,
        reservation: Reservation,
        attempt: u32,
        was_alive: bool,
        evidence: Value,
        early: Option<Inheritance>,
    ) -> Result<Episode> {
        self.run.store().keep_from_pruning(&self.id)?;
        let mut found = match early {
            // The wrong order, for a test: what was read before the letters may grow afterwards.
            Some(found) => {
                self.post_to_all(attempt)?;
                found
            }
            None => {
                self.post_to_all(attempt)?;
                self.inherit(attempt)?
            }
        };
        let spans = self.own_what_is_unsynced(&mut found)?;
        let Inheritance { source, mut lineage, cut, adopted, goes_on, has_ended, counted, .. } = found;
        lineage.truncate(cut);
        let resumed = source.claim.attempt;
        let time = self.run.store().disk().now_us();
        let found = if was_alive { Why::Superseded } else { Why::Crashed };
        let base = Base {
            attempt,
            resumed,
            inherited: lineage.steps(),
            spans,
            adopted: adopted.clone(),
            counted: Some(counted),
            found: (!has_ended).then_some(found),
            time,
            depth: 0,
        };
        if goes_on {
            self.refuse_behind_a_seal(attempt)?;
        }
        self.publish_base(&base, source.base.as_ref())?;
        if let Some(why) = adopted {
            return Err(Error::Ended { what: self.what(), why });
        }
        if !has_ended {
            let found = FoundEnd { why: found, evidence: &evidence, steps: None, records: counted };
            self.run.store().record_end_of(&self.id, resumed, &found)?;
        }
        let pending = lineage.pending()?;
        let start = Start { steps: lineage.steps(), is_pending: pending.is_some() };
        let more = vec![(fields::RESUMED, Value::Int(i64::from(resumed)))];
        let recorder = self.recorder(attempt, start, more)?;
        Ok(Episode::new(self.run, Arc::new(recorder), Some((resumed, lineage)), pending, reservation))
    }

    /// Posts to every process that may believe that it owns the episode. Owners before the newest base were told by
    /// the processes that published that base and the earlier ones.
    fn post_to_all(&self, attempt: u32) -> Result<()> {
        let store = self.run.store();
        let chain = Chain::read_newest_before(store.cards(), &self.id, attempt)?;
        let mut owners: Vec<Id> = chain.links.iter().map(|link| link.claim.writer).collect();
        if store.options().is_broken_post_to_last_only() {
            owners.drain(..owners.len() - 1);
        }
        owners.sort_unstable();
        owners.dedup();
        let letter = FenceNotice::Claimed { what: 1, id: self.id, attempt, from: self.writer.id() };
        for owner in owners {
            store.notices().post(store.cards(), &owner, &letter)?;
        }
        Ok(())
    }

    /// Reads the newest attempt that has a base, and decides what to inherit. The log is read again, since its owner
    /// may have recorded until it got the letter.
    pub(in crate::store) fn inherit(&self, attempt: u32) -> Result<Inheritance> {
        let store = self.run.store();
        let chain = Chain::read_newest_before(store.cards(), &self.id, attempt)?;
        let source =
            if store.options().is_broken_baseless_is_empty() { chain.newest() } else { chain.in_force() };
        let source = source.cloned().ok_or_else(|| Error::NotFound { what: self.what() })?;
        store.refuse_lost_bases(&self.id, &chain)?;
        let chain = chain.with_found_ends(store.cards(), &self.id)?;
        let (mut lineage, mut unsynced) = self.all_written_by(&chain, &source)?;
        let counted = lineage.own_records();
        let end = lineage.end()?;
        let inherited = source.base.as_ref().and_then(|base| base.adopted.clone());
        let has_ended = end.is_some() || inherited.is_some();
        let over = inherited.or(end.as_ref().and_then(final_why));
        let goes_on = over.as_deref().is_some_and(|why| goes_on_behind(&self.how.retry, why));
        let adopted = over.filter(|_| !goes_on);
        let restarts = adopted.is_none() && self.restarts(&mut lineage)?;
        let cut = self.cut(&lineage, adopted.is_some(), restarts)?;
        if end.as_ref().is_some_and(|end| end.why.is_none()) && self.how.at.is_none() && !restarts {
            return Err(lost_end(&self.id, source.claim.attempt));
        }
        self.check_whole(&mut lineage, cut, restarts)?;
        unsynced = unsynced.filter(|first| *first < cut);
        Ok(Inheritance { source, lineage, unsynced, cut, adopted, goes_on, has_ended, counted })
    }

    /// What the source wrote, including what is not known to be synced.
    fn all_written_by(&self, chain: &Chain, source: &Link) -> Result<(Lineage, Option<usize>)> {
        let store = self.run.store();
        if store.options().is_broken_act_on_what_was_known() {
            let catalog = store.looking();
            let lineage = catalog.lineage(&self.id, chain, source.claim.attempt)?;
            return Ok(with_unsynced(&catalog, lineage));
        }
        let mut catalog = store.looking_at_all();
        catalog.refresh_of(&writers_of(source))?;
        let lineage = catalog.lineage(&self.id, chain, source.claim.attempt)?;
        if store.options().is_broken_scan_is_proof() {
            let card = scan_path(&source.claim.writer, 0);
            if store.disk().exists(&card).doing("look for", &card)? {
                return Ok((lineage, None));
            }
        }
        Ok(with_unsynced(&catalog, lineage))
    }

    /// The line up to which the attempt inherits.
    fn cut(&self, lineage: &Lineage, is_over: bool, restarts: bool) -> Result<usize> {
        let all = lineage.end_at().unwrap_or(lineage.lines().len());
        match self.how.at {
            _ if is_over => Ok(lineage.lines().len()),
            _ if restarts => Ok(0),
            None => Ok(all),
            Some(steps) if steps <= lineage.steps() => Ok(lineage.cut_behind(steps)),
            Some(steps) => Err(Error::BadInput {
                field: "at".to_owned(),
                value: format!("is {steps}"),
                fix: format!(
                    "{} has {}: give that or less",
                    self.what(),
                    counted(lineage.steps(), "durable step")
                ),
            }),
        }
    }

    /// An error if the inherited part is damaged, unless the caller chose to resume before the damage.
    fn check_whole(&self, lineage: &mut Lineage, cut: usize, restarts: bool) -> Result<()> {
        let takes_all = self.how.at.is_none() && !restarts;
        let may_miss_more = takes_all && lineage.end_at().is_none() && lineage.may_have_lost_its_end();
        let loss = match lineage.first_loss(cut) {
            None => lineage.loss_since_last_step(cut)?,
            loss => loss,
        };
        let loss =
            loss.or_else(|| may_miss_more.then(|| "records after its last one may be lost".to_owned()));
        match loss {
            None => Ok(()),
            Some(loss) => Err(Error::Damaged {
                path: self.what(),
                offset: 0,
                found: format!("{loss}; open it with `at` to go on before the damage, or restart it"),
            }),
        }
    }

    /// Copies the inherited records that are not known to be synced: they may have been read from memory only.
    fn own_what_is_unsynced(&self, found: &mut Inheritance) -> Result<Vec<Span>> {
        let Inheritance { lineage, unsynced, cut, .. } = found;
        let mut spans = lineage.spans(*cut);
        if self.run.store().options().is_broken_no_copy() {
            return Ok(spans);
        }
        let Some(unsynced) = *unsynced else { return Ok(spans) };
        let Some(span) = spans.last_mut() else { return Ok(spans) };
        let first_seq = lineage.lines()[unsynced].seq;
        let what = CopyOf { episode: self.id, attempt: span.attempt, from: span.writer, first_seq };
        let writer = &*self.writer;
        let copied = copied_to(writer, &what);
        // An earlier try copied up to here. Copies have no gap, so this one continues there, even if more is synced
        // by now.
        let is_next = |at: &usize| lineage.lines()[*at].seq == copied;
        let first = lineage.own_lines(unsynced).find(is_next).unwrap_or(unsynced);
        let lines = lineage.lines()[first..*cut].to_vec();
        let (from, to) = (lines[0].seq, span.to);
        let missing = (first..*cut).filter(|at| lines[at - first].seq >= copied);
        let records = missing.map(|at| match lineage.item(at)? {
            Item::Record(record) => {
                let kind = record.kind().ok_or_else(|| self.cannot_copy(record.kind))?;
                Ok((kind, record.fields))
            }
            _ => Err(self.cannot_copy(lines[at - first].kind)),
        });
        copy(writer, &what, records)?;
        let mine = Span { writer: writer.id(), attempt: what.attempt, copied: Some(what.from), from, to };
        span.to = from;
        if span.from == span.to {
            spans.pop();
        }
        spans.push(mine);
        Ok(spans)
    }

    fn cannot_copy(&self, kind: u8) -> Error {
        let found = format!("a record of kind {kind} could not be copied");
        Error::Damaged { path: self.what(), offset: 0, found }
    }

    fn publish_base(&self, base: &Base, resumed: Option<&Base>) -> Result<()> {
        let storage = self.run.store().cards();
        let path = base_path(&self.id, base.attempt);
        match publish_card(storage, &path, kind::BASE, &base_fields(&self.id, base, resumed))? {
            Published::Done => Ok(()),
            // Another process took us for dead, and passed over our claim.
            Published::Taken => {
                let attempt = base.attempt + 1;
                let (what, episode, mine) = (self.what(), self.id, base.attempt);
                Err(Error::Fenced { what, episode, mine, attempt, is_stream: false })
            }
            Published::Unfit => Err(Error::BadInput {
                field: "base".to_owned(),
                value: format!("has {} spans", base.spans.len()),
                fix: "restart the episode: it was taken over too often".to_owned(),
            }),
        }
    }
}

/// The first line that is not known to be synced. What the source itself inherited was synced by the process that
/// took it over.
fn with_unsynced(catalog: &Catalog, lineage: Lineage) -> (Lineage, Option<usize>) {
    let first = lineage.own_lines(lineage.lines().len()).find(|&at| lineage.is_unsynced(catalog, at));
    (lineage, first)
}
