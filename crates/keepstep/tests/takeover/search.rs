//! Goes through all decisions, depth first, from the start each time; what was seen before is not gone into again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep::Broken;

use super::oracle;
use super::scheduled_disk::ScheduledDisk;
use super::script::{Actor, Script, open_run};
use super::shelf::{Shelf, digest};
use super::stage::{Choice, Director, Part, Rules, Scene, Stage};

/// Who acts, and what may happen to them.
#[derive(Debug, Clone)]
pub struct Plot {
    pub name: &'static str,
    pub scripts: Vec<Script>,
    /// How many actors may be killed. Being stopped needs no number: to be stopped is never to be chosen again, and every
    /// state is looked at as if all stopped there.
    pub kills_max: usize,
    /// How often somebody may be made to wait who could go on, where all orders are too many to be tried.
    pub switches_max: Option<usize>,
    pub rules: Rules,
    pub broken: Option<Broken>,
    pub seed: u64,
}

/// A search of hours says now and then that it goes on.
const TELL_EVERY: u64 = 250_000;

/// One actor runs at a time: going from thread to thread takes half as long on one processor. Searches that run side by
/// side take turns with the processors.
fn stay_on_one_processor() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let processors: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)).collect();
    if processors.is_empty() {
        return;
    }
    let mut one = rustix::thread::CpuSet::new();
    one.set(processors[NEXT.fetch_add(1, Ordering::Relaxed) % processors.len()]);
    // It is as right without, and slower.
    let _ = rustix::thread::sched_setaffinity(None, &one);
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Findings {
    /// Runs from the start, each by another sequence of decisions.
    pub schedules: u64,
    /// States that differ.
    pub states: u64,
    /// Of these, how many differ in what is on disk or was promised: each was looked at by the oracle.
    pub judged: u64,
    /// Of these, ends: nobody had anything left to do.
    pub ends: u64,
    /// The longest schedule.
    pub decisions_max: usize,
    /// How a promise was broken, and by which decisions.
    pub broke: Option<(String, Vec<Choice>)>,
}

struct Node {
    choices: Vec<Choice>,
    at: usize,
    key: u64,
    /// Whoever went last could go on, and so many switches were made before.
    goes_on: Option<Choice>,
    switches: usize,
}

impl Node {
    /// How many switches were made, this one counted.
    fn switched(&self) -> usize {
        let chosen = self.choices[self.at];
        let is_switch = matches!(chosen, Choice::Run(_)) && self.goes_on.is_some_and(|last| last != chosen);
        self.switches + usize::from(is_switch)
    }
}

#[derive(Default)]
struct Search {
    kills_max: usize,
    switches_max: Option<usize>,
    seed: u64,
    seen: HashSet<u64>,
    /// What the oracle has looked at: files, and what was promised.
    judged: HashSet<u64>,
    nodes: Vec<Node>,
    depth: usize,
    /// Decisions are only followed, and told.
    is_replay: bool,
    told: Vec<String>,
    findings: Findings,
}

/// The search, as each run asks it.
#[derive(Clone)]
struct Guide(Arc<Mutex<Search>>);

impl Guide {
    fn lock(&self) -> MutexGuard<'_, Search> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Director for Guide {
    fn next(&mut self, scene: &Scene) -> Option<Choice> {
        self.lock().next(scene)
    }
}

impl Search {
    fn next(&mut self, scene: &Scene) -> Option<Choice> {
        let depth = self.depth;
        self.depth += 1;
        if let Some(node) = self.nodes.get(depth) {
            let choice = node.choices[node.at];
            if depth + 1 == self.nodes.len() && !self.is_replay {
                assert_eq!(
                    node.key,
                    scene.key(),
                    "the same decisions led elsewhere: a run is not repeatable"
                );
            }
            self.tell(choice, scene);
            return Some(choice);
        }
        if self.is_replay {
            return None;
        }
        self.discover(scene)
    }

    fn discover(&mut self, scene: &Scene) -> Option<Choice> {
        let key = scene.key();
        let switches = self.nodes.last().map_or(0, Node::switched);
        // With fewer switches left the future is another.
        let seen = if self.switches_max.is_some() { digest((key, switches)) } else { key };
        if !self.seen.insert(seen) {
            return None;
        }
        let mut choices = self.choices(scene);
        let last = self.nodes.last().map(|node| node.choices[node.at]);
        let goes_on = last.filter(|last| choices.first() == Some(last) && matches!(last, Choice::Run(_)));
        if goes_on.is_some() && self.switches_max.is_some_and(|most| switches >= most) {
            choices.retain(|choice| Some(*choice) == goes_on || matches!(choice, Choice::Kill(_)));
        }
        let is_end = !choices.iter().any(|choice| matches!(choice, Choice::Run(_)));
        self.findings.states += 1;
        self.findings.ends += u64::from(is_end);
        self.findings.decisions_max = self.findings.decisions_max.max(self.nodes.len());
        let is_new = self.judged.insert(digest((scene.shelf.digest(), scene.said.digest(), is_end)));
        if is_new && let Err(why) = oracle::check(scene, self.seed, is_end) {
            let path = self.nodes.iter().map(|node| node.choices[node.at]).collect();
            self.findings.broke = Some((why, path));
            return None;
        }
        let first = *choices.first()?;
        self.nodes.push(Node { choices, at: 0, key, goes_on, switches });
        Some(first)
    }

    /// Whoever went last goes on first: that needs no change of threads.
    fn choices(&self, scene: &Scene) -> Vec<Choice> {
        let last = self.nodes.last().map(|node| node.choices[node.at]);
        let actors = 0..scene.parts.len();
        // Up to its first act nobody sees an actor: all begin before anything is decided.
        if let Some(begins) = actors.clone().find(|&actor| scene.parts[actor] == Part::Begins) {
            return vec![Choice::Run(begins)];
        }
        let mut choices: Vec<Choice> =
            actors.clone().filter(|&actor| scene.can_act(actor)).map(Choice::Run).collect();
        choices.sort_by_key(|choice| Some(*choice) != last);
        let gone = scene.parts.iter().filter(|part| **part == Part::Gone).count();
        if gone < self.kills_max {
            choices.extend(actors.filter(|&actor| scene.parts[actor] != Part::Gone).map(Choice::Kill));
        }
        choices
    }

    fn tell(&mut self, choice: Choice, scene: &Scene) {
        if self.is_replay {
            self.told.push(match choice {
                Choice::Run(actor) => format!("actor {actor}: {}", scene.about_to[actor]),
                Choice::Kill(actor) => format!("actor {actor} is killed"),
            });
        }
    }

    /// On to the next sequence of decisions. False if there is none.
    fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some(node) = self.nodes.last_mut() {
            node.at += 1;
            if node.at < node.choices.len() {
                return true;
            }
            self.nodes.pop();
        }
        false
    }
}

impl Plot {
    /// Every sequence of decisions, or up to the first that breaks a promise.
    pub fn search(&self) -> Findings {
        let guide = Guide(Arc::default());
        {
            let mut search = guide.lock();
            (search.kills_max, search.seed) = (self.kills_max, self.seed);
            search.switches_max = self.switches_max;
        }
        stay_on_one_processor();
        let shelf = self.prepare();
        loop {
            self.run(&shelf, guide.clone(), false);
            let mut search = guide.lock();
            search.findings.schedules += 1;
            if search.findings.schedules.is_multiple_of(TELL_EVERY) {
                println!("{}: {} schedules so far", self.name, search.findings.schedules);
            }
            if search.findings.broke.is_some() || !search.advance() {
                search.findings.judged = search.judged.len() as u64;
                return std::mem::take(&mut search.findings);
            }
        }
    }

    /// What happens by these decisions, in words.
    pub fn tell(&self, path: &[Choice]) -> Vec<String> {
        let guide = Guide(Arc::default());
        guide.lock().is_replay = true;
        let nodes = path.iter().map(|choice| Node {
            choices: vec![*choice],
            at: 0,
            key: 0,
            goes_on: None,
            switches: 0,
        });
        guide.lock().nodes = nodes.collect();
        let shelf = self.prepare();
        self.run(&shelf, guide.clone(), true);
        std::mem::take(&mut guide.lock().told)
    }

    /// Whoever takes a writer for dead writes down what it finds in its log.
    fn scans_appear(&self) -> bool {
        self.kills_max > 0 || self.rules.locks_slip
    }

    /// A store with a run, and nothing in it.
    fn prepare(&self) -> Shelf {
        let stage = Arc::new(Stage::new(1, Shelf::default(), Rules::default()));
        open_run(ScheduledDisk::new(&stage, 0, self.seed + 1), None).expect("opens");
        stage.shelf()
    }

    fn run(&self, shelf: &Shelf, guide: Guide, tells: bool) {
        let names_change = self.broken == Some(Broken::RenameInsteadOfLink);
        // These go by what they saw too early.
        let is_early = matches!(self.broken, Some(Broken::ReadBeforeClaim | Broken::PostAfterRead));
        let remembers_all = self.rules.remembers_all || is_early;
        let rules =
            Rules { remembers_all, names_change, tells, scans_appear: self.scans_appear(), ..self.rules };
        let stage = Arc::new(Stage::new(self.scripts.len(), shelf.clone(), rules));
        let actors: Vec<Actor> = self
            .scripts
            .iter()
            .enumerate()
            .map(|(number, script)| {
                let run =
                    open_run(ScheduledDisk::new(&stage, number, self.seed), self.broken).expect("opens");
                Actor::new(Arc::clone(&stage), number, run, *script)
            })
            .collect();
        std::thread::scope(|scope| {
            for mut actor in actors {
                let stage = Arc::clone(&stage);
                scope.spawn(move || {
                    let number = actor.number;
                    stage.enter(number);
                    actor.perform();
                    stage.idle(number);
                    // What it still holds is let go of by a process that can do nothing any more.
                    drop(actor);
                    stage.leave(number);
                });
            }
            stage.begin(Box::new(guide));
        });
    }
}
