//! An episode that is half-done under another policy: it goes on, begins anew or is left alone, as whoever opens it says.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use keepstep::disk::sim::SimDisk;
use keepstep::{
    Ending, EpisodeName, Error, NewPolicy, Opening, Options, PlanOptions, PolicyName, RemainingOptions,
    Resume, Run, Step, Store, Value, WhenBusy,
};

fn run_on(sim: &SimDisk) -> Run {
    let options = Options::default().background(false);
    Store::on_files(sim.process(), options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn under(policy: impl Into<PolicyName>, new_policy: NewPolicy) -> Opening {
    Opening::default().policy(policy).new_policy(new_policy)
}

/// The policy of each step; none for a step that names none.
type Recorded = [Option<Value>];

/// An episode that was left after a step under each of these policies.
fn left(policies: &Recorded) -> SimDisk {
    let sim = SimDisk::new(61);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    for policy in policies {
        let step = Step::new().action(1).reward(0.5);
        episode.step(policy.clone().into_iter().fold(step, Step::policy)).expect("records");
    }
    episode.end("aborted", Ending::default()).expect("ends").wait().expect("is durable");
    sim
}

fn number(policy: i64) -> Option<Value> {
    Some(Value::Int(policy))
}

/// How many steps the next attempt inherits; the words of the refusal if there is none.
fn opened(sim: &SimDisk, how: Opening) -> Result<u64, String> {
    match run_on(sim).open(name(), how) {
        Ok(episode) => {
            assert_eq!(episode.attempt(), 1);
            Ok(episode.inherited())
        }
        Err(Error::ResumeRefused { why, .. }) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

/// The same policy always goes on; another one as it was said. The newest step counts, not those before.
#[test]
fn the_newest_step_says_which_policy_it_was() {
    use NewPolicy::{Continue, Refuse, Restart};
    let text = |name: &str| Some(Value::from(name));
    let cases: [(&Recorded, PolicyName, [Option<u64>; 3]); 6] = [
        (&[number(3), number(3)], 3.into(), [Some(2), Some(2), Some(2)]),
        (&[number(3), number(4)], 4.into(), [Some(2), Some(2), Some(2)]),
        (&[number(4), number(3)], 4.into(), [Some(2), Some(0), None]),
        (&[text("a"), text("b")], "a".into(), [Some(2), Some(0), None]),
        (&[number(3)], "3".into(), [Some(1), Some(0), None]),
        (&[None, None], 3.into(), [Some(2), Some(2), Some(2)]),
    ];
    for (recorded, mine, expected) in cases {
        for (new_policy, expected) in [Continue, Restart, Refuse].into_iter().zip(expected) {
            let got = opened(&left(recorded), under_name(&mine, new_policy));
            assert_eq!(got.ok(), expected, "{recorded:?}, then {mine} with {new_policy:?}");
        }
    }
}

fn under_name(policy: &PolicyName, new_policy: NewPolicy) -> Opening {
    Opening::default().policy(policy.clone()).new_policy(new_policy)
}

/// A refusal says which policies, and leaves everything as it was: whoever may go on still gets attempt 1, with all steps.
#[test]
fn a_refusal_costs_nothing() {
    let sim = left(&[number(3), number(3)]);
    let why = opened(&sim, under(4, NewPolicy::Refuse)).expect_err("refuses");
    assert_eq!(why, "it has 2 steps under policy 3, and resuming under policy 4 is refused");
    assert_eq!(opened(&sim, under(3, NewPolicy::Refuse)), Ok(2));

    // Nor does it cost a live owner its episode.
    let sim = SimDisk::new(62);
    let owner = run_on(&sim);
    let episode = owner.episode(name()).expect("begins");
    episode.step(Step::new().action(1).policy(3)).expect("records");
    let how = under(4, NewPolicy::Refuse).busy(WhenBusy::Take);
    let refused = run_on(&sim).open(name(), how).expect_err("refuses");
    assert!(matches!(refused, Error::ResumeRefused { .. }), "{refused}");
    episode.step(Step::new().action(2).policy(3)).expect("is still its own");
}

/// What is inherited counts: a rewind behind the steps of another policy goes on, and a turn that waits counts too.
#[test]
fn what_would_be_inherited_counts() {
    let sim = left(&[number(3), number(4)]);
    let how = under(3, NewPolicy::Refuse).at(1);
    assert_eq!(opened(&sim, how), Ok(1));

    let sim = SimDisk::new(63);
    let process = sim.process();
    let options = Options::default().background(false);
    let run =
        Store::on_files(process.clone(), options).expect("opens").run("run", Value::Null).expect("opens");
    let episode = run.episode(name()).expect("begins");
    episode.step(Step::new().action(1).policy(3)).expect("records");
    let turn = episode.turn(Step::new().action(2).policy(4)).expect("is said");
    process.kill();
    drop(turn);
    drop((episode, run));
    assert!(opened(&sim, under(3, NewPolicy::Refuse)).is_err());
    let how = under(3, NewPolicy::Restart);
    let taken = run_on(&sim).open(name(), how).expect("begins anew");
    assert_eq!((taken.attempt(), taken.inherited(), taken.steps()), (1, 0, 0));
    assert!(taken.pending().is_none(), "what was said under the other policy is not adopted");
}

/// Without a policy there is nothing to compare; and what begins anew anyway is not refused.
#[test]
fn a_rule_needs_a_policy() {
    let sim = left(&[number(3)]);
    let run = run_on(&sim);
    let mute = Opening::default().new_policy(NewPolicy::Restart);
    let bad = [run.open(name(), mute.clone()).err(), run.group("task", 0, 1).claim(&mute).err()];
    assert!(bad.iter().all(|error| matches!(error, Some(Error::BadInput { .. }))), "{bad:?}");
    let anew = under(4, NewPolicy::Refuse).resume(Resume::Restart);
    assert_eq!(opened(&sim, anew), Ok(0));
}

/// Jobs of a plan and slots of a group heed it too: a slot that is refused is passed over, and nobody waits for it.
#[test]
fn plans_and_groups_heed_it() {
    let sim = left(&[number(3)]);
    let run = run_on(&sim);
    let group = run.group("task", 0, 2);
    let refuse = under(4, NewPolicy::Refuse);
    let new = group.claim(&refuse).expect("looks").expect("has a new one");
    assert_eq!((new.id(), new.attempt()), (group.members()[1], 0));
    assert!(group.claim(&refuse).expect("looks").is_none());

    let other = run_on(&sim);
    other.plan(["task"], PlanOptions::default()).expect("plans");
    let job = other.claim(RemainingOptions::default()).expect("looks").expect("was interrupted");
    let episode = job.episode(under(4, NewPolicy::Restart)).expect("begins anew");
    assert_eq!((episode.attempt(), episode.inherited()), (1, 0));
}
