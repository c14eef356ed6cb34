//! Takeover in every order of its steps: an owner and two takers, each stopping anywhere, on the real protocol code.
//!
//! `make takeover-all` searches the bigger plots. The broken variants must be caught, or the search proves nothing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "takeover/oracle.rs"]
mod oracle;
#[path = "takeover/scheduled_disk.rs"]
mod scheduled_disk;
#[path = "takeover/script.rs"]
mod script;
#[path = "takeover/search.rs"]
mod search;
#[path = "takeover/shelf.rs"]
mod shelf;
#[path = "takeover/stage.rs"]
mod stage;

use keepstep::Broken;
use script::{Script, Tends};
use search::{Findings, Plot};
use stage::Rules;

const NOBODY: Script = Script { before: None, steps: 0, ends: false, comes_back: false, tends: None };
const OWNER: Script = Script { before: Some(1), steps: 1, ..NOBODY };
const TAKER: Script = Script { steps: 1, ..NOBODY };
/// Takes the episode, and then has nothing to say.
const GUEST: Script = NOBODY;
/// Has recorded a step, and now does nothing.
const SITTER: Script = Script { before: Some(1), ..NOBODY };
const COMPACTOR: Script = Script { tends: Some(Tends::Compact), ..NOBODY };
const REAPER: Script = Script { tends: Some(Tends::Reap), ..NOBODY };
/// Evidence is always wrong about those who live.
const SLIPPING: Rules = Rules {
    locks_slip: true,
    tends: true,
    at_syncs: false,
    splits_writes: false,
    at_every_measure: false,
    scans_appear: false,
    remembers_all: true,
    names_change: false,
    tells: false,
};

fn plot(name: &'static str, scripts: &[Script]) -> Plot {
    // Seeds of their own: tests run side by side, and writers with one id would pass for one another.
    let seed = shelf::digest(name);
    Plot {
        name,
        scripts: scripts.to_vec(),
        kills_max: 0,
        switches_max: None,
        rules: Rules::default(),
        broken: None,
        seed,
    }
}

fn must_hold(plot: &Plot) {
    let findings = plot.search();
    if let Some((why, path)) = &findings.broke {
        panic!("{}: {why}\n{}", plot.name, plot.tell(path).join("\n"));
    }
    let Findings { schedules, states, judged, ends, decisions_max, .. } = findings;
    println!(
        "{}: {schedules} schedules, {states} states, {judged} of them by what is on disk or was promised, \
         {ends} ends, at most {decisions_max} decisions, 0 promises broken",
        plot.name
    );
    assert!(ends > 0, "nobody ever came to an end");
}

/// A broken variant is caught, by the same search.
fn must_be_caught(name: &'static str, broken: Broken, scripts: &[Script]) {
    must_be_caught_in(&plot(name, scripts), broken);
}

fn must_be_caught_in(plot: &Plot, broken: Broken) {
    let plot = Plot { broken: Some(broken), ..plot.clone() };
    let findings = plot.search();
    let Some((why, path)) = &findings.broke else {
        panic!("{broken:?} went unnoticed in {} states", findings.states);
    };
    println!("{broken:?} is caught after {} schedules: {why}", findings.schedules);
    if std::env::var_os("KEEPSTEP_TELL").is_some() {
        println!("{}", plot.tell(path).join("\n"));
    }
}

/// Every sync and every half of a write is a point of its own, and one of them is killed.
#[test]
fn an_owner_and_a_taker() {
    let rules = Rules { at_syncs: true, splits_writes: true, ..Rules::default() };
    must_hold(&Plot { rules, kills_max: 1, ..plot("owner, taker", &[OWNER, TAKER]) });
}

/// N+2 arises: two takers at once, of an owner that has said what it had to say.
#[test]
fn two_takers() {
    must_hold(&plot("sitter, two guests", &[SITTER, GUEST, GUEST]));
}

/// As above, and the owner goes on while they take it.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn an_owner_and_two_guests() {
    must_hold(&plot("owner, two guests", &[OWNER, GUEST, GUEST]));
}

/// As above, and they go on too, one taking it from the other.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn an_owner_and_two_takers() {
    must_hold(&plot("owner, two takers", &[OWNER, TAKER, TAKER]));
}

/// Nothing is left out: each measure is a point of decision, and all that was ever seen counts.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn an_owner_and_a_taker_in_the_finest_grain() {
    let rules = Rules {
        at_syncs: true,
        splits_writes: true,
        at_every_measure: true,
        remembers_all: true,
        ..Rules::default()
    };
    must_hold(&Plot { rules, kills_max: 1, ..plot("owner, taker, finest", &[OWNER, TAKER]) });
}

/// Up to two of the three are killed.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn two_takers_and_deaths() {
    must_hold(&Plot { kills_max: 2, ..plot("sitter, two guests, deaths", &[SITTER, GUEST, GUEST]) });
}

/// The end is said while somebody takes over.
#[test]
fn an_owner_that_ends_and_a_taker() {
    let owner = Script { ends: true, ..OWNER };
    must_hold(&Plot { kills_max: 1, ..plot("owner that ends, taker", &[owner, TAKER]) });
}

/// Nobody has it yet, and both want it.
#[test]
fn two_who_begin_at_once() {
    must_hold(&plot("two begin at once", &[TAKER, TAKER]));
}

/// An owner whose lock has slipped goes on while its log is compacted: it is told, comes back, and nothing is lost.
#[test]
fn an_owner_and_a_compactor() {
    let owner = Script { comes_back: true, ..OWNER };
    must_hold(&Plot { rules: SLIPPING, ..plot("owner, compactor", &[owner, COMPACTOR]) });
}

/// As above, and somebody takes the episode over at the same time.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn an_owner_a_guest_and_a_compactor() {
    must_hold(&Plot { rules: SLIPPING, ..plot("owner, guest, compactor", &[OWNER, GUEST, COMPACTOR]) });
}

/// Two compact at once. All orders did not end within hours: those with so many switches do.
#[test]
#[ignore = "minutes: `make takeover-all`"]
fn an_owner_and_two_compactors() {
    let plot = plot("owner, two compactors, four switches", &[OWNER, COMPACTOR, COMPACTOR]);
    must_hold(&Plot { rules: SLIPPING, switches_max: Some(4), ..plot });
}

/// An owner whose lock has slipped goes on, and says the end, while it is reaped.
#[test]
fn an_owner_that_ends_and_a_reaper() {
    let owner = Script { ends: true, comes_back: true, ..OWNER };
    must_hold(&Plot { rules: SLIPPING, ..plot("owner that ends, reaper", &[owner, REAPER]) });
}

/// What `compact` reads before the owner is told may grow afterwards.
#[test]
fn compacting_by_evidence_is_caught() {
    let plot = Plot { rules: SLIPPING, ..plot("compact by evidence", &[OWNER, COMPACTOR]) };
    must_be_caught_in(&plot, Broken::CloseByEvidence);
}

/// What a taker knew of a log is not what is there once its owner is told.
#[test]
fn acting_on_what_was_known_is_caught() {
    let plot = Plot { rules: SLIPPING, ..plot("act on what was known", &[OWNER, TAKER]) };
    must_be_caught_in(&plot, Broken::ActOnWhatWasKnown);
}

#[test]
fn reading_before_the_claim_is_caught() {
    must_be_caught("read before claim", Broken::ReadBeforeClaim, &[OWNER, TAKER]);
}

#[test]
fn posting_after_the_read_is_caught() {
    must_be_caught("post after read", Broken::PostAfterRead, &[OWNER, TAKER]);
}

#[test]
fn posting_to_the_last_owner_only_is_caught() {
    must_be_caught("post to last only", Broken::PostToLastOnly, &[OWNER, GUEST, GUEST]);
}

#[test]
fn treating_a_claim_without_a_base_as_empty_is_caught() {
    must_be_caught("baseless is empty", Broken::BaselessIsEmpty, &[SITTER, GUEST, GUEST]);
}

#[test]
fn claims_by_rename_are_caught() {
    must_be_caught("rename", Broken::RenameInsteadOfLink, &[SITTER, GUEST, GUEST]);
}
