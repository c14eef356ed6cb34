//! Puts new segments in force, by one create-only card.

use keepstep_format::Id;
use keepstep_format::card::kind;

use super::Plan;
use super::output::Made;
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::cards::{self, publish_card};
use crate::segment::manifest::Doomed;
use crate::segment::names::{
    TEMPORARY, WRITERS, list_segments, list_temporary, manifest_copy_path, manifest_path, parse_segment_path,
    segment_path, writer_dir,
};
use crate::segment::{Manifest, Storage};

/// How deep folders are nested at most.
const DEPTH_MAX: usize = 3;

/// The result of publishing.
pub(super) enum Published {
    /// The manifest is in force, or there was nothing to publish.
    Done { files_waiting: u64 },
    /// Another process was faster.
    Taken,
}

/// Publishes the next manifest, if there is anything new.
pub(super) fn publish(plan: &Plan<'_>, made: &Made) -> Result<Published> {
    if made.lost_race {
        return Ok(Published::Taken);
    }
    let next = next_manifest(plan, made)?;
    let files_waiting = next.to_delete.len() as u64;
    let is_same = (&next.held, &next.to_delete, &next.pruned)
        == (&plan.manifest.held, &plan.manifest.to_delete, &plan.manifest.pruned);
    if is_same {
        return Ok(Published::Done { files_waiting });
    }
    if plan.options.faults.deletes_first {
        for (writer, segment) in plan.sources.segments() {
            let path = segment_path(&writer, segment.number);
            plan.storage.disk().remove(&path).doing("delete", &path)?;
            let dir = writer_dir(&writer);
            plan.storage.disk().settle(&dir).doing("sync", &dir)?;
        }
    }
    put_in_force(plan.storage, &next)
        .map(|is_ours| if is_ours { Published::Done { files_waiting } } else { Published::Taken })
}

/// Publishes a manifest. False if its number is taken.
pub(in crate::tend) fn put_in_force(storage: &Storage, next: &Manifest) -> Result<bool> {
    let number = next.number.unwrap_or(0);
    let path = manifest_path(number);
    let fields = next.to_fields(storage.disk().now_us());
    let is_ours = match publish_card(storage, &path, kind::MANIFEST, &fields)? {
        cards::Published::Done => true,
        cards::Published::Taken => false,
        cards::Published::Unfit => return Err(too_long(next)),
    };
    if is_ours {
        // Only read if the manifest is damaged: the store is whole without it.
        let _ = publish_card(storage, &manifest_copy_path(number), kind::MANIFEST, &fields);
    }
    Ok(is_ours)
}

fn too_long(next: &Manifest) -> Error {
    Error::BadInput {
        field: "pruned".to_owned(),
        value: format!("{} attempts", next.pruned.len()),
        fix: "the notes of what was pruned do not fit a card of 64 MiB; prune fewer episodes".to_owned(),
    }
}

fn next_manifest(plan: &Plan<'_>, made: &Made) -> Result<Manifest> {
    let storage: &Storage = plan.storage;
    let before = plan.manifest;
    let mut held = before.held.clone();
    for (writer, segment) in plan.sources.segments() {
        if writer == Id::NONE {
            held.remove(&segment.number);
        }
    }
    held.extend(made.segments.iter().copied());
    let mut to_delete: Vec<Doomed> =
        before.to_delete.iter().filter(|it| !plan.gone.contains(&it.path)).cloned().collect();
    let time = storage.disk().now_us();
    let mut doom = |path: String| {
        if !to_delete.iter().any(|it| it.path == path) {
            to_delete.push(Doomed { path, time });
        }
    };
    plan.sources.paths(storage)?.into_iter().for_each(&mut doom);
    for number in list_segments(storage.disk(), &Id::NONE)? {
        if !held.contains_key(&number) {
            // The process that made it was killed, or loses the race to this manifest.
            doom(segment_path(&Id::NONE, number));
        }
    }
    leftovers(plan)?.into_iter().for_each(&mut doom);
    if let Some(last) = last_number_to_keep(before, &held, &to_delete) {
        to_delete.push(last);
    }
    let next = before.followed_by(held, to_delete);
    Ok(if plan.options.faults.asks_nobody { next } else { next.with_closed(plan.sources.closed()) })
}

/// The highest number stays named although its file is gone, so that it is never used again.
fn last_number_to_keep(
    before: &Manifest,
    held: &std::collections::BTreeMap<u64, u64>,
    to_delete: &[Doomed],
) -> Option<Doomed> {
    let number = |it: &Doomed| {
        parse_segment_path(&it.path).filter(|(writer, _)| *writer == Id::NONE).map(|(_, number)| number)
    };
    let highest = held.keys().copied().chain(to_delete.iter().filter_map(number)).max();
    let last = before.to_delete.iter().max_by_key(|it| number(it))?;
    (number(last)? > highest.unwrap_or(0) || highest.is_none()).then(|| last.clone())
}

/// Temporary files that were left behind. Their owners are unknown, except in a writer's own folder; but making one
/// takes moments, and the grace period is longer.
fn leftovers(plan: &Plan<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    find_temporary(plan.storage, "", 0, &mut found)?;
    let replaced = plan.sources.segments().map(|(writer, _)| writer).filter(|writer| *writer != Id::NONE);
    for writer in replaced.chain(plan.sources.empty.iter().copied()) {
        found.extend(list_temporary(plan.storage.disk(), &writer_dir(&writer))?);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn find_temporary(storage: &Storage, dir: &str, depth: usize, found: &mut Vec<String>) -> Result<()> {
    for entry in storage.disk().list(dir).doing("list", dir)? {
        let path = disk::join(dir, &entry.name);
        if entry.is_dir {
            // The folder of a live writer is left alone.
            if path != WRITERS && depth < DEPTH_MAX {
                find_temporary(storage, &path, depth + 1, found)?;
            }
        } else if entry.name.starts_with(TEMPORARY) {
            found.push(path);
        }
    }
    Ok(())
}
