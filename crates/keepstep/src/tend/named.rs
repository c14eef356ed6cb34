//! Checks that named files exist: a missing file leaves no damaged byte behind.
//!
//! The rule: *everything that depends on a file names it, and every name is followed here.* Records depend on the
//! claim of their attempt, on its base, and on the card of their run; entries of a stream depend on the claim of
//! their writer; seals and bases depend on the records that they name. What a card names was durable before the card,
//! so claims and seals are read before the logs. What a record depends on was published before the record, and is
//! looked for after the logs. What nothing names cannot be missed: the last card of a plan, and a claim without
//! records.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use keepstep_format::card::kind;
use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;
use keepstep_format::{Id, fields};

use super::report::Wrong;
use super::verify::Verifier;
use crate::disk::join;
use crate::error::{Doing, Result, or_told};
use crate::segment::cards::{CardFound, Fields, as_id, read_card};
use crate::segment::chain::{Based, GONE, base_path, claim_path, read_based, read_claim};
use crate::segment::named::{list_bases, mailbox_dir, parse_claim};
use crate::segment::names::{
    SCANS, SEAL_NOTE, parse_scan, run_folder, run_path, scan_path, seal_path, segment_path, stream_path,
};
use crate::segment::{Liveness, Log, Storage};

/// What the cards of a store name.
#[derive(Default)]
pub(super) struct Named {
    /// Attempts, and the writers that claimed them.
    claimed: HashMap<(Id, u32), Id>,
    /// Attempts that were sealed, and the seal.
    sealed: Vec<(Id, u32, String)>,
    /// Segments that a SCAN card describes.
    scanned: Vec<(Id, u64)>,
}

/// What the records of a store depend on.
#[derive(Default)]
pub(super) struct Rests {
    /// Attempts that have or had records, and the writers.
    attempts: HashMap<(Id, u32), BTreeSet<Id>>,
    /// Episodes that have a name, and so need a claim.
    named: HashSet<Id>,
    /// The cards of runs, and the generation id that each must have.
    runs: BTreeSet<(String, Id)>,
    /// Groups whose seal was announced.
    seals: BTreeSet<Id>,
    /// Streams, and the writers that put entries into them.
    streams: BTreeSet<(Id, Id)>,
}

impl Rests {
    /// Notes a subject that a log has or had records of.
    pub(super) fn note_subject(&mut self, writer: &Id, bind: &Bind) {
        match bind.what {
            What::Attempt => {
                self.attempts.entry((bind.id, bind.attempt)).or_default().insert(*writer);
            }
            What::Stream if bind.attempt == 0 => {
                self.streams.insert((bind.id, *writer));
            }
            _ => {}
        }
    }

    /// Notes what a record depends on.
    pub(super) fn note_record(&mut self, bind: &Bind, kind: Option<Kind>, said: &Fields) {
        match (bind.what, kind) {
            (What::Attempt, Some(Kind::Begin)) => self.note_begin(bind, said),
            (What::Run, Some(Kind::Note)) if said.text(fields::NAME) == Some(SEAL_NOTE) => {
                self.seals.extend(said.id(fields::VALUE));
            }
            _ => {}
        }
    }

    fn note_begin(&mut self, bind: &Bind, said: &Fields) {
        if said.get(fields::UNNAMED).is_none() {
            self.named.insert(bind.id);
        }
        let generation = said.get(fields::GENERATION).and_then(|number| number.as_int()).unwrap_or(0);
        if let (Some(run), Some(generation_id)) = (said.text(fields::RUN), said.id(fields::GENERATION_ID)) {
            self.runs.insert((run_path(&run_folder(run), generation as u64), generation_id));
        }
    }
}

/// Reads claims and seals. Damaged ones are reported with the other cards.
pub(super) fn find_named(storage: &Storage) -> Result<Named> {
    let mut named = Named::default();
    for path in files_in(storage, "claims")? {
        let Some(claim) = parse_claim(path.rsplit('/').next().unwrap_or_default()) else { continue };
        if let (Some(CardFound::Card(card)), _) = or_told(read_card(storage, &path, kind::CLAIM))? {
            named.claimed.extend(card.id(fields::WRITER).map(|writer| (claim, writer)));
        }
    }
    for entry in storage.disk().list(SCANS).doing("list", SCANS)? {
        named.scanned.extend(parse_scan(&entry.name));
    }
    for path in files_in(storage, "groups")? {
        let (Some(CardFound::Card(card)), _) = or_told(read_card(storage, &path, kind::SEAL))? else {
            continue;
        };
        let members = card.get(fields::MEMBERS).and_then(|members| members.as_list()).unwrap_or_default();
        named.sealed.extend(members.iter().filter_map(|member| {
            let attempt = u32::try_from(member.get("attempt")?.as_int()?).ok()?;
            Some((as_id(member.get("episode")?)?, attempt, path.clone()))
        }));
    }
    Ok(named)
}

/// The files in the folders of a folder.
fn files_in(storage: &Storage, dir: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in storage.disk().list(dir).doing("list", dir)? {
        let path = join(dir, &entry.name);
        if entry.is_dir {
            let inside = storage.disk().list(&path).doing("list", &path)?;
            files.extend(inside.iter().filter(|it| !it.is_dir).map(|it| join(&path, &it.name)));
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

impl Verifier<'_> {
    /// True for an attempt that only adopted an end: it has no records of its own.
    fn only_adopted_an_end(&self, episode: &Id, attempt: u32) -> Result<bool> {
        let (based, _) = or_told(read_based(self.storage, episode, attempt))?;
        Ok(matches!(based.flatten(), Some(Based::Base(base)) if base.adopted.is_some()))
    }

    /// Call this after all logs were read.
    pub(super) fn check_named(&mut self, named: &Named, logs: &[Log]) -> Result<()> {
        let mut rests = std::mem::take(&mut self.rests);
        let manifest = self.storage.manifest()?;
        let is_pruned = |episode: &Id| manifest.pruned(episode).is_some();
        for (episode, attempt, path) in &named.sealed {
            let is_recorded = rests.attempts.contains_key(&(*episode, *attempt)) || is_pruned(episode);
            if !is_recorded && !self.only_adopted_an_end(episode, *attempt)? {
                let detail =
                    format!("attempt {attempt} at episode {episode} is sealed here, and is in no log");
                self.gone(path.clone(), detail);
            }
        }
        let alive: BTreeMap<Id, Liveness> = logs.iter().map(|log| (*log.writer(), log.liveness())).collect();
        // If a later attempt has records, it does not matter what happened to the first.
        let recorded: BTreeSet<Id> = rests.attempts.keys().map(|(episode, _)| *episode).collect();
        let unrecorded = named.claimed.iter().filter(|((episode, attempt), writer)| {
            let may_still_come = alive.get(writer) == Some(&Liveness::Live);
            *attempt == 0 && !recorded.contains(episode) && !may_still_come && !is_pruned(episode)
        });
        self.report.unrecorded.extend(unrecorded.map(|((episode, _), _)| *episode));
        self.report.unrecorded.sort_unstable();
        rests.attempts.retain(|(episode, _), _| rests.named.contains(episode) && !is_pruned(episode));
        if named.claimed.is_empty() && !self.knew_claims(&rests)? {
            self.report.unclaimed.extend(rests.attempts.keys().map(|(episode, _)| *episode));
            self.report.unclaimed.sort_unstable();
            self.report.unclaimed.dedup();
        } else {
            self.check_claims(&rests, named)?;
            self.check_bases_of(&rests)?;
        }
        self.check_runs(&rests)?;
        self.check_streams(&rests)?;
        self.check_scans(&named.scanned)?;
        self.check_seals(&rests)
    }

    /// True if a writer knew of claims: such writers make a mailbox first. Then missing claims are a loss.
    fn knew_claims(&self, rests: &Rests) -> Result<bool> {
        let writers: BTreeSet<&Id> = rests.attempts.values().flatten().collect();
        for writer in writers {
            let mailbox = mailbox_dir(writer);
            if self.storage.disk().exists(&mailbox).doing("look for", &mailbox)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Each attempt must have records of the writer that claimed it, and of no other.
    fn check_claims(&mut self, rests: &Rests, named: &Named) -> Result<()> {
        for ((episode, attempt), writers) in &rests.attempts {
            let claimant = match named.claimed.get(&(*episode, *attempt)) {
                Some(claimant) => Some(*claimant),
                // It may be newer than the list of claims.
                None => match read_claim(self.storage, episode, *attempt) {
                    Ok(claim) => claim.map(|claim| claim.writer),
                    // Reported with the other cards.
                    Err(error) if error.is_of_one_file() => continue,
                    Err(error) => return Err(error),
                },
            };
            let path = claim_path(episode, *attempt);
            match claimant {
                None => self.gone(path, GONE.to_owned()),
                Some(claimant) => {
                    for writer in writers.iter().filter(|writer| **writer != claimant) {
                        self.gone(path.clone(), format!("the claim of writer {writer}, which has recorded"));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_bases_of(&mut self, rests: &Rests) -> Result<()> {
        let bases = list_bases(self.storage)?;
        let has_base = |episode, attempt| bases.get(episode).is_some_and(|bases| bases.contains(attempt));
        let later = rests.attempts.keys().filter(|(_, attempt)| *attempt > 0);
        for (episode, attempt) in later.filter(|(episode, attempt)| !has_base(episode, attempt)) {
            self.gone(base_path(episode, *attempt), GONE.to_owned());
        }
        Ok(())
    }

    fn check_runs(&mut self, rests: &Rests) -> Result<()> {
        for (path, generation_id) in &rests.runs {
            let (Some(card), _) = or_told(read_card(self.storage, path, kind::RUN))? else { continue };
            match card {
                CardFound::Nothing => {
                    self.gone(path.clone(), "it is gone, and there are records of the run".to_owned());
                }
                CardFound::Card(card) if card.id(fields::GENERATION_ID) != Some(*generation_id) => {
                    let detail = "it names another run than the records of this name and generation";
                    self.gone(path.clone(), detail.to_owned());
                }
                CardFound::Card(_) | CardFound::Damaged => {}
            }
        }
        Ok(())
    }

    fn check_streams(&mut self, rests: &Rests) -> Result<()> {
        for (stream, writer) in &rests.streams {
            let path = stream_path(stream, &writer.to_string());
            if !self.storage.disk().exists(&path).doing("look for", &path)? {
                self.gone(path, "it is gone, and its writer has put entries".to_owned());
            }
        }
        Ok(())
    }

    /// A process that scanned or closed a log left a card about its last segment. The segment must exist, unless
    /// `compact` moved it.
    fn check_scans(&mut self, scanned: &[(Id, u64)]) -> Result<()> {
        let manifest = self.storage.manifest()?;
        for (writer, number) in
            scanned.iter().filter(|(writer, number)| !manifest.is_replaced(writer, *number))
        {
            let (card, path) = (scan_path(writer, *number), segment_path(writer, *number));
            // A card that disappeared meanwhile was about a log that is being replaced.
            let exists = |path: &str| self.storage.disk().exists(path).doing("look for", path);
            let is_told = self.report.damage.iter().any(|it| it.path == path);
            if !is_told && !exists(&path)? && exists(&card)? {
                self.gone(path, "it is gone, and there is a card about it".to_owned());
            }
        }
        Ok(())
    }

    fn check_seals(&mut self, rests: &Rests) -> Result<()> {
        for group in &rests.seals {
            let path = seal_path(group);
            if !self.storage.disk().exists(&path).doing("look for", &path)? {
                self.report.unsealed.push(*group);
            }
        }
        Ok(())
    }

    fn gone(&mut self, path: String, detail: String) {
        self.damage(path, None, (0, 0), Wrong::Gone, detail);
    }
}
