//! Groups: sealed all at once or not at all, by one word that everybody reads alike.
//!
//! `KEEPSTEP_SEED` repeats a run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, dead_code, reason = "a test has no outside, and shares a module with another")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;
#[path = "streams/turns.rs"]
mod turns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hooked_disk::HookedDisk;
use keepstep::disk::sim::SimDisk;
use keepstep::disk::{Cards, Directory, Files};
use keepstep::{
    Broken, Ending, Episode, EpisodeName, Error, GroupView, Id, Level, Opening, Options, PlanOptions, Remedy,
    Run, Step, Store, Value, WhenBusy,
};

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

fn options(broken: Option<Broken>) -> Options {
    Options::default().background(false).dictionary(false).broken(broken)
}

fn run_over(disk: Arc<dyn Files>) -> Run {
    Store::on_files(disk, options(None)).expect("opens").run("run", Value::Null).expect("opens")
}

fn run_on(sim: &SimDisk) -> Run {
    run_over(sim.process())
}

fn name(sample: i64) -> EpisodeName {
    EpisodeName::task("task").iteration(3).sample(sample)
}

fn begun(run: &Run, sample: i64) -> Episode {
    let episode = run.episode(name(sample)).expect("begins");
    episode.step(Step::new().action(sample).reward(0.5)).expect("records");
    episode
}

fn ended(run: &Run, sample: i64, why: &str) {
    begun(run, sample).end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

fn rewards(run: &Run, of: &[(i64, f64)]) -> Vec<(Id, f64)> {
    of.iter().map(|(sample, reward)| (run.episode_id(&name(*sample)), *reward)).collect()
}

fn shown(view: &GroupView) -> Vec<(i64, u32, Option<f64>)> {
    view.members.iter().map(|member| (member.sample, member.attempt, member.reward)).collect()
}

fn group(run: &Run, size: usize) -> keepstep::Group {
    run.group("task", 3, size)
}

fn seals(run: &Run) -> usize {
    let found = run.groups().expect("lists");
    assert!(found.damaged.is_empty());
    found.groups.len()
}

/// Nobody sees a group before it is sealed; then everybody sees the same.
#[test]
fn a_sealed_group_is_seen_by_all() {
    let sim = SimDisk::new(seed());
    let (recording, trainer) = (run_on(&sim), run_on(&sim));
    ended(&recording, 0, "finished");
    ended(&recording, 1, "truncated");
    assert_eq!((seals(&trainer), group(&trainer, 2).sealed().expect("reads")), (0, None));
    let said = rewards(&recording, &[(1, f64::NAN), (0, 0.75)]);
    let view = group(&recording, 2).seal(Some(&said), "judge", None).expect("seals");
    assert_eq!(
        view.members.iter().map(|member| member.episode).collect::<Vec<_>>(),
        group(&trainer, 2).members()
    );
    assert_eq!((view.missing.len(), view.task.as_str(), view.iteration), (0, "task", 3));
    assert_eq!(view.members[0].reward, Some(0.75));
    assert!(view.members[1].reward.is_some_and(f64::is_nan));
    let seen = trainer.groups().expect("lists").groups;
    assert_eq!(format!("{seen:?}"), format!("[{view:?}]"), "NaN is a reward too");
    // Again, by another process: the same. In another run: nothing.
    let again = group(&trainer, 2).seal(Some(&said), "judge", None).expect("the same is fine");
    assert_eq!(format!("{again:?}"), format!("{view:?}"));
    let other = trainer.store().run("other", Value::Null).expect("opens");
    assert_eq!(seals(&other), 0);
    assert!(trainer.store().verify(&mut |_| {}).expect("verifies").is_whole());
}

/// Whoever follows sees a note before there is a seal, and looks for the card.
#[test]
fn a_seal_is_announced() {
    let sim = SimDisk::new(seed() + 1);
    let (recording, trainer) = (run_on(&sim), run_on(&sim));
    ended(&recording, 0, "finished");
    let mut index = trainer.notes().expect("reads");
    assert!(index.seals().is_empty());
    let view = group(&recording, 1).seal(None, "loop", None).expect("seals");
    index.refresh().expect("looks");
    assert_eq!(index.seals().iter().map(|hint| hint.group).collect::<Vec<_>>(), [view.group]);
    assert_eq!(trainer.sealed_group(&view.group).expect("reads"), Some(view));
    assert_eq!(trainer.sealed_group(&Id([7; 16])).expect("reads"), None);
    assert_eq!(index.notes().iter().count(), 0, "it is a note on no episode");
}

/// With other rewards, another source or another size a sealed group stays as it is, and the difference is shown.
#[test]
fn a_seal_never_changes() {
    let sim = SimDisk::new(seed() + 2);
    let run = run_on(&sim);
    ended(&run, 0, "finished");
    ended(&run, 1, "finished");
    let said = rewards(&run, &[(0, 0.0), (1, 1.0)]);
    let view = group(&run, 2).seal(Some(&said), "judge", None).expect("seals");
    let other = rewards(&run, &[(0, 0.0), (1, 0.5)]);
    let refused = [
        (group(&run, 2).seal(Some(&other), "judge", None), "sample 1 was 1.0, is 0.5"),
        (group(&run, 2).seal(None, "judge", None), "sample 0 was 0.0, is none"),
        (group(&run, 2).seal(Some(&said), "human", None), "source was \"judge\", is \"human\""),
        (group(&run, 3).seal(Some(&said), "judge", Some(2)), "size was 2, is 3"),
    ];
    for (refused, difference) in refused {
        let error = refused.expect_err("is refused");
        assert!(matches!(error, Error::Ended { .. }) && error.remedy() == Remedy::Stop, "{error}");
        assert!(error.to_string().contains(difference), "{error}");
    }
    assert_eq!(run.groups().expect("lists").groups, [view]);
}

/// A reward for a stranger, two for one, none for a member, one for who has not ended: refused, and nothing is written.
#[test]
fn wrong_rewards_are_refused_before_anything_is_written() {
    let sim = SimDisk::new(seed() + 3);
    let run = run_on(&sim);
    ended(&run, 0, "finished");
    ended(&run, 1, "finished");
    let _running = begun(&run, 2);
    let files = sim.files();
    let wrong = [
        (rewards(&run, &[(0, 1.0), (1, 1.0), (9, 1.0)]), "is not of this group"),
        (rewards(&run, &[(0, 1.0), (1, 1.0), (1, 1.0)]), "twice"),
        (rewards(&run, &[(0, 1.0)]), "is missing"),
        (rewards(&run, &[(0, 1.0), (1, 1.0), (2, 1.0)]), "running"),
    ];
    for (rewards, why) in wrong {
        let error = group(&run, 3).seal(Some(&rewards), "judge", Some(1)).expect_err("is refused");
        assert!(matches!(error, Error::BadInput { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(seals(&run), 0);
    }
    let without_beats = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        files.into_iter().filter(|(path, _)| !path.ends_with("beat")).collect()
    };
    assert_eq!(without_beats(sim.files()), without_beats(files), "nothing was written");
}

/// Members that have not ended for good are listed with the reason that applies to each.
#[test]
fn missing_members_have_reasons() {
    let sim = SimDisk::new(seed() + 4);
    let run = run_on(&sim);
    ended(&run, 0, "finished");
    ended(&run, 1, "errored");
    let _running = begun(&run, 2);
    let doomed = sim.process();
    let lost = begun(&run_over(doomed.clone()), 3);
    doomed.kill();
    drop(lost);
    let error = group(&run, 5).seal(None, "loop", None).expect_err("is not complete");
    let said = error.to_string();
    for reason in ["1: errored", "2: running", "3: crashed", "4: not begun", "1 of 5 members"] {
        assert!(said.contains(reason), "{said}");
    }
    assert!(matches!(error, Error::BadInput { .. }) && seals(&run) == 0);
    let view = group(&run, 5).seal(None, "loop", Some(1)).expect("enough");
    assert_eq!(shown(&view), [(0, 0, None)]);
    let missing: Vec<(i64, &str)> =
        view.missing.iter().map(|(sample, why)| (*sample, why.as_str())).collect();
    assert_eq!(missing, [(1, "errored"), (2, "running"), (3, "crashed"), (4, "not begun")]);
    assert_eq!(run.groups().expect("lists").groups, [view]);
}

/// Nothing at all is not a group, whatever is asked for.
#[test]
fn an_empty_group_is_refused() {
    let sim = SimDisk::new(seed() + 5);
    let run = run_on(&sim);
    for (size, least) in [(0, None), (0, Some(0)), (2, Some(0))] {
        let refused = group(&run, size).seal(None, "loop", least);
        assert!(matches!(refused, Err(Error::BadInput { .. })), "{refused:?}");
    }
    assert_eq!(seals(&run), 0);
}

/// The attempt that counts is the one that was finished, after one that failed.
#[test]
fn the_attempt_that_was_finished_counts() {
    let sim = SimDisk::new(seed() + 6);
    let run = run_on(&sim);
    ended(&run, 0, "errored");
    let again = Opening::default().busy(WhenBusy::Take);
    let episode = run.open(name(0), again).expect("goes on");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    let view = group(&run, 1).seal(None, "loop", None).expect("seals");
    assert_eq!(shown(&view), [(0, 1, None)]);
}

/// A seal that cannot be read is told, and the others are read all the same.
#[test]
fn a_damaged_seal_is_told() {
    let sim = SimDisk::new(seed() + 7);
    let process = sim.process();
    let run = run_over(process.clone());
    ended(&run, 0, "finished");
    group(&run, 1).seal(None, "loop", None).expect("seals");
    let name = EpisodeName::task("other");
    let episode = run.episode(name).expect("begins");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    let whole = run.group("other", 0, 1).seal(None, "loop", None).expect("seals");
    let hex = group(&run, 1).id().to_string();
    let path = format!("groups/{}/{hex}.seal", &hex[..2]);
    process.open_rw(&path).unwrap().write_at(b"X", 40).unwrap();
    let found = run.groups().expect("lists");
    assert_eq!((found.groups, found.damaged), (vec![whole], vec![path]));
    let refused = group(&run, 1).seal(None, "loop", None);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
}

type Sealed = Arc<Mutex<Vec<keepstep::Result<GroupView>>>>;

fn sealer(reward: f64, broken: Option<Broken>, told: &Sealed) -> turns::Work {
    let told = Arc::clone(told);
    Box::new(move |disk| {
        // The store itself is there already: only the seal is broken.
        let run = Store::on_files(disk, options(broken))
            .and_then(|store| store.run("run", Value::Null))
            .expect("opens");
        let said = rewards(&run, &[(0, reward)]);
        let sealed = group(&run, 1).seal(Some(&said), "judge", None);
        told.lock().unwrap().push(sealed);
    })
}

/// Runs two sealers with different rewards in one order: one of them must win, and the other be told.
fn two_sealers(seed: u64, broken: Option<Broken>, choose: turns::Choose) -> (Vec<usize>, Result<(), String>) {
    let sim = SimDisk::new(seed);
    ended(&run_on(&sim), 0, "finished");
    let told = Sealed::default();
    let calls = turns::run(&sim, vec![sealer(0.25, broken, &told), sealer(0.75, broken, &told)], choose);
    let told = told.lock().unwrap();
    let won: Vec<GroupView> = told.iter().filter_map(|told| told.clone().ok()).collect();
    let refused = told.iter().filter(|told| matches!(told, Err(Error::Ended { .. }))).count();
    let is_well = won.len() == 1 && refused == 1 && run_on(&sim).groups().expect("lists").groups == won;
    (calls, if is_well { Ok(()) } else { Err(format!("{told:?}")) })
}

fn all_orders_of_two_sealers(broken: Option<Broken>) -> Result<u64, String> {
    let mut seed = seed() + 100_000_000 * (1 + u64::from(broken.is_some()));
    let (calls, checked) = two_sealers(seed, broken, turns::two_switches(0, usize::MAX, 1, 0));
    checked?;
    let mut schedules = 0;
    for (first, second) in [(0, 1), (1, 0)] {
        for before in 0..=calls[0] {
            for between in 1..=calls[0] {
                (seed, schedules) = (seed + 1, schedules + 1);
                two_sealers(seed, broken, turns::two_switches(first, before, second, between)).1?;
            }
        }
    }
    Ok(schedules)
}

/// Two processes seal with different rewards at once: in every order one of them wins, and the other is told.
#[test]
fn two_sealers_never_both_win() {
    let schedules = all_orders_of_two_sealers(None).unwrap_or_else(|why| panic!("{why}"));
    println!("{schedules} orders of two sealers, one winner each");
}

#[test]
fn sealing_by_rename_is_caught() {
    let why = all_orders_of_two_sealers(Some(Broken::RenameInsteadOfLink)).expect_err("is caught");
    println!("caught: {why}");
}

/// Whatever the power takes, and whenever: the seal is there whole or not at all, for ever once it was acknowledged, and
/// what it rests on is there too.
#[test]
fn no_cut_breaks_a_seal() {
    const SEALED: u64 = 1;
    let sim = SimDisk::new(seed() + 8);
    let (recording, sealing) = (run_on(&sim), run_on(&sim));
    let process = sim.process();
    // Its end was never synced by itself.
    let kill = options(None).level(Level::Kill);
    let dying = Store::on_files(process.clone(), kill).unwrap().run("run", Value::Null).expect("opens");
    ended(&recording, 0, "finished");
    ended(&dying, 1, "truncated");
    let running = begun(&recording, 2);
    process.kill();
    drop(dying);
    let said = rewards(&sealing, &[(0, 0.25), (1, 0.5)]);
    let sealed = group(&sealing, 3).seal(Some(&said), "judge", Some(2)).expect("seals");
    sim.event(SEALED);
    let trace = sim.trace();
    // Or their writers would pass for alive in what the cuts leave.
    drop((recording, sealing, running));
    let (mut states, mut seen) = (0, 0);
    for cut in 0..trace.cuts() {
        let mut disks = vec![trace.killed(cut)];
        if trace.is_new(cut) {
            let count = trace.state_count(cut);
            disks.extend((0..count.min(8)).map(|nth| match count {
                0..=8 => trace.state(cut, nth),
                _ => trace.random_state(cut, seed() + nth),
            }));
        }
        for disk in disks {
            states += 1;
            let run = run_on(&disk);
            let found = run.groups().expect("lists");
            assert!(found.damaged.is_empty(), "cut {cut}");
            let was_told = trace.events_before(cut).contains(&SEALED);
            assert!(!was_told || !found.groups.is_empty(), "cut {cut}: it was acknowledged");
            let Some(view) = found.groups.first() else { continue };
            seen += 1;
            assert_eq!(*view, sealed, "cut {cut} ({})", trace.operation_before(cut));
            for member in &view.members {
                let why = run.view(&name(member.sample)).and_then(|view| view.ending()).expect("reads");
                let why = why.and_then(|end| end.why);
                assert!(matches!(why.as_deref(), Some("finished" | "truncated")), "cut {cut}: {why:?}");
            }
            let again = group(&run, 3).seal(Some(&said), "judge", Some(2)).expect("the same is fine");
            assert_eq!(again, sealed);
        }
    }
    println!("{states} states, {seen} of them sealed, no promise broken");
    assert!(states > 500 && seen > 10);
}

/// A member whose end somebody may still overrule is not sealed: a taker has claimed it, and has not said what it inherits.
#[test]
fn an_end_that_may_be_overruled_is_no_end() {
    let sim = SimDisk::new(seed() + 9);
    let run = run_on(&sim);
    ended(&run, 0, "finished");
    // A taker that claimed before the end was written, and lives. Its claim is one of another episode, made to fit.
    let process = sim.process();
    let taker = run_over(process.clone());
    let held = begun(&taker, 7);
    let path = |sample: i64, attempt: u32| {
        let hex = run.episode_id(&name(sample)).to_string();
        format!("claims/{}/{hex}.{attempt}.claim", &hex[..2])
    };
    let card = keepstep::disk::read_file(&*process, &path(7, 0)).expect("is claimed");
    let (store, episode) = (run.store().id(), run.episode_id(&name(0)));
    let content = claim_of_attempt_1(&card, &store, [&path(7, 0), &path(0, 1)], &episode);
    assert!(Directory::over(process.clone()).put(&path(0, 1), &content).expect("publishes"));
    let error = group(&run, 1).seal(None, "loop", None).expect_err("is not final yet");
    assert!(error.to_string().contains("being taken over"), "{error}");
    // When the taker is gone for good its claim means nothing.
    process.kill();
    drop((held, taker));
    assert_eq!(shown(&group(&run, 1).seal(None, "loop", None).expect("seals")), [(0, 0, None)]);
}

/// The claim that stands at one path, for attempt 1 of an episode, to stand at another.
fn claim_of_attempt_1(card: &[u8], store: &Id, [from, to]: [&str; 2], episode: &Id) -> Vec<u8> {
    use keepstep::format::encode::{Encoder, NothingKnown};
    use keepstep::format::{card, decode, fields, hash};
    let raw = card::Card::decode(card, store, from).expect("validates").body;
    let body = decode::Body { raw, references: Vec::new() };
    let found = decode::read_fields(&body, &mut decode::NoBodies).expect("reads");
    let key = hash::ContentKey::new(&store.0);
    let mut encoder = Encoder::fields(&key, &NothingKnown);
    for (number, value) in found {
        encoder.field(number);
        let value = match number {
            fields::ATTEMPT => Value::Int(1),
            fields::EPISODE => Value::bytes(episode.0),
            _ => value,
        };
        encoder.put(&value).expect("fits");
    }
    card::Card::encode(store, to, card::kind::CLAIM, &encoder.finish().body)
}

/// A group that was claimed with one size is not claimed or sealed with another, in either direction, by whichever process:
/// half of a group was sealed as all of it, and nothing was missing.
#[test]
fn the_size_that_a_group_was_claimed_with_is_its_size() {
    let sim = SimDisk::new(5);
    let run = run_on(&sim);
    for _ in 0..2 {
        let episode = group(&run, 4).claim(&Opening::default()).expect("claims").expect("is free");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    let other = run_on(&sim);
    for size in [2, 3, 5, 8] {
        for run in [&run, &other] {
            let claimed = group(run, size).claim(&Opening::default()).map(|_| ());
            let sealed = group(run, size).seal(None, "loop", Some(1)).map(|_| ());
            for refused in [claimed, sealed] {
                let error = refused.expect_err("is refused").to_string();
                let said = format!("is {size}, and sample 0 of it was claimed in a group of 4: give size=4");
                assert!(error.contains(&said), "{error}");
            }
        }
    }
    assert_eq!(group(&other, 4).seal(None, "loop", Some(2)).expect("seals").missing.len(), 2);
    // A plan is more than a claim: whoever plans more samples says so on purpose.
    let planned = |size| run.group("planned", 0, size);
    drop(planned(2).claim(&Opening::default()).expect("claims"));
    run.plan(["planned".to_owned()], PlanOptions::default().samples(3)).expect("plans");
    assert!(planned(2).claim(&Opening::default()).is_err());
    assert!(planned(3).claim(&Opening::default()).expect("claims").is_some());
}

/// Which of these sizes a group can be sealed with, each asked of a copy.
fn sizes_that_seal(sim: &SimDisk, sizes: &[usize]) -> Vec<usize> {
    let trace = sim.trace();
    let seals = |size: usize| {
        let copy = trace.killed(trace.cuts() - 1);
        group(&run_on(&copy), size).seal(None, "loop", Some(1)).is_ok()
    };
    sizes.iter().copied().filter(|size| seals(*size)).collect()
}

/// A group whose first sample was opened by its name was claimed with two sizes, and then could not be sealed with either:
/// claiming asked the first sample alone, and sealing asked all. The lowest sample that was claimed in a group decides.
#[test]
fn a_group_has_one_size_also_if_samples_of_it_were_opened_by_name() {
    let sim = SimDisk::new(6);
    let run = run_on(&sim);
    ended(&run, 0, "finished");
    drop(group(&run, 4).claim(&Opening::default()).expect("claims").expect("is free"));
    for run in [&run, &run_on(&sim)] {
        let claimed = group(run, 8).claim(&Opening::default()).map(|it| it.map(|it| it.id()));
        let error = claimed.expect_err("is refused").to_string();
        assert!(
            error.contains("is 8, and sample 1 of it was claimed in a group of 4: give size=4"),
            "{error}"
        );
    }
    assert_eq!(sizes_that_seal(&sim, &[2, 4, 8]), [4]);
    // A sample beyond the group, opened by its name, is none of its samples.
    ended(&run, 4, "finished");
    assert_eq!(sizes_that_seal(&sim, &[2, 4, 5, 8]), [4]);
    assert!(group(&run, 4).claim(&Opening::default()).expect("claims").is_some());
}

/// Two that claim a group with two sizes at the same moment: one of them is refused, and the other's size is the group's,
/// wherever in the claim of one the other comes.
#[test]
fn a_race_of_two_sizes_has_one_winner() {
    for (theirs, named) in [(1, false), (4, false), (1, true), (4, true)] {
        for at in 0.. {
            let what = format!("{theirs} claims with 4 before call {at}, sample 0 by name: {named}");
            let sim = SimDisk::new(7);
            if named {
                ended(&run_on(&sim), 0, "finished");
            }
            let (calls, other) = (Arc::new(AtomicU64::new(u64::MAX / 2)), sim.clone());
            let count = Arc::clone(&calls);
            let run = run_over(HookedDisk::new(sim.process(), move |_| {
                if count.fetch_add(1, Ordering::Relaxed) == at {
                    let run = run_on(&other);
                    for _ in 0..theirs {
                        if let Ok(Some(episode)) = group(&run, 4).claim(&Opening::default()) {
                            episode.end("finished", Ending::default()).expect("ends").wait().expect("ends");
                        }
                    }
                }
            }));
            calls.store(0, Ordering::Relaxed);
            let claimed = group(&run, 8).claim(&Opening::default());
            let calls = calls.swap(u64::MAX / 2, Ordering::Relaxed);
            if let Ok(Some(episode)) = &claimed {
                episode.end("finished", Ending::default()).expect("ends").wait().expect("ends");
            }
            assert_eq!(sizes_that_seal(&sim, &[4, 8]).len(), 1, "{what}: {claimed:?}");
            if calls <= at {
                assert!(at > 10, "only {at} calls");
                break;
            }
        }
    }
}

/// Claiming does not read what each sample was claimed with, each time: the lowest that has a size decides, and what a
/// handle found to have none is not asked again.
#[test]
fn a_large_group_is_not_asked_sample_by_sample_for_its_size() {
    const SAMPLES: i64 = 40;
    let sim = SimDisk::new(8);
    let named = run_on(&sim);
    (0..SAMPLES).for_each(|sample| ended(&named, sample, "finished"));
    let looks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    let run = run_over(HookedDisk::new(sim.process(), move |call| {
        counted.fetch_add(u64::from(call.starts_with("open claims/")), Ordering::Relaxed);
    }));
    let group = group(&run, SAMPLES as usize + 20);
    let looks_of_a_claim = || {
        looks.store(0, Ordering::Relaxed);
        let episode = group.claim(&Opening::default()).expect("claims").expect("is free");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("ends");
        looks.load(Ordering::Relaxed)
    };
    let (first, second, third) = (looks_of_a_claim(), looks_of_a_claim(), looks_of_a_claim());
    println!("{first} cards were read for the first claim, then {second}, {third}");
    assert!(second + 30 < first && third < second + 10, "{first}, {second}, {third}");
}
