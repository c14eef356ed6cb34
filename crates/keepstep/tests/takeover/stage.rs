//! One actor runs at a time; wherever another could make a difference, somebody decides who goes on.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::shelf::{Shelf, digest};

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// An actor does what it is about to do, and goes on to where the next decision is.
    Run(usize),
    /// An actor's process is killed: it does nothing more, and its lock is free.
    Kill(usize),
}

/// Where an actor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// It has done nothing yet.
    Begins,
    /// It is about to do something that others can see, or that sees others.
    Waits,
    /// It has done all that it had to, and still holds its store and its lock.
    Idle,
    /// It was killed.
    Gone,
}

/// Asked wherever there is more than one way to go on. None ends the run.
pub trait Director: Send {
    fn next(&mut self, scene: &Scene) -> Option<Choice>;
}

/// How things stand when the director is asked.
pub struct Scene {
    pub shelf: Shelf,
    pub parts: Vec<Part>,
    /// For each actor, everything it was ever told: what it does next follows from that.
    pub histories: Vec<u64>,
    /// What each actor is about to do, if somebody wants to know.
    pub about_to: Vec<String>,
    pub said: super::script::Acknowledged,
}

impl Scene {
    /// True if somebody else may still do something.
    pub fn has_others(&self, actor: usize) -> bool {
        (0..self.parts.len()).any(|other| other != actor && self.can_act(other))
    }

    /// True if an actor may still do something.
    pub fn can_act(&self, actor: usize) -> bool {
        self.parts.get(actor).is_some_and(|part| matches!(part, Part::Begins | Part::Waits))
    }

    /// Two runs that come to the same key have the same future.
    pub fn key(&self) -> u64 {
        digest((self.shelf.digest(), &self.parts, &self.histories))
    }
}

/// What the actors share.
pub struct Stage {
    play: Mutex<Play>,
    turns: Vec<Condvar>,
    pub rules: Rules,
}

/// What counts as a point of decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// A sync is one. It changes nothing that anybody sees, so it need not be.
    pub at_syncs: bool,
    /// A write to a segment is two: others may see half of it.
    pub splits_writes: bool,
    /// Each measure of a log is one, also those whose answer cannot matter.
    pub at_every_measure: bool,
    /// Somebody may be killed, and then others write down what they find in its log.
    pub scans_appear: bool,
    /// Everything that an actor was ever told counts, also what the protocol no longer looks at (see `ScheduledDisk::link`).
    pub remembers_all: bool,
    /// Somebody compacts: what that makes, and looks for it, count too.
    pub tends: bool,
    /// All locks seem free, whoever lives: the worst that evidence can be.
    pub locks_slip: bool,
    /// Names can be replaced (the broken variant): then finding one is no proof that it stays.
    pub names_change: bool,
    /// Whether to say in words what actors are about to do.
    pub tells: bool,
}

struct Play {
    scene: Scene,
    /// None before the curtain rises: everybody does as they like.
    director: Option<Box<dyn Director>>,
    turn: Option<usize>,
    doomed: Vec<bool>,
    is_over: bool,
}

fn stopped() -> io::Error {
    io::Error::other("this process was stopped")
}

impl Stage {
    pub fn new(actors: usize, shelf: Shelf, rules: Rules) -> Self {
        let scene = Scene {
            shelf,
            parts: vec![Part::Begins; actors],
            histories: vec![0; actors],
            about_to: vec![String::new(); actors],
            said: super::script::Acknowledged::default(),
        };
        let play = Play { scene, director: None, turn: None, doomed: vec![false; actors], is_over: false };
        Self { play: Mutex::new(play), turns: (0..actors).map(|_| Condvar::new()).collect(), rules }
    }

    fn lock(&self) -> MutexGuard<'_, Play> {
        self.play.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on one actor runs at a time. Nobody may be at it yet.
    pub fn begin(&self, director: Box<dyn Director>) {
        let mut play = self.lock();
        play.director = Some(director);
        self.decide(&mut play);
    }

    /// The files as they are now.
    pub fn shelf(&self) -> Shelf {
        self.lock().scene.shelf.clone()
    }

    /// Everything fails from now on, so that all threads end.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.turns.iter().for_each(Condvar::notify_all);
    }

    pub fn is_stopped(&self, actor: usize) -> bool {
        let play = self.lock();
        play.is_over || play.doomed[actor]
    }

    /// Does something at once that only this actor sees, or that nobody can change any more.
    pub fn local<T>(&self, actor: usize, what: impl FnOnce(&mut Shelf) -> T) -> io::Result<T> {
        let mut play = self.lock();
        if play.is_over || play.doomed[actor] {
            return Err(stopped());
        }
        Ok(what(&mut play.scene.shelf))
    }

    /// Frees a lock, also for one who may do nothing more.
    pub fn unlock(&self, file: usize, actor: usize) {
        self.lock().scene.shelf.unlock(file, actor);
    }

    /// Does something; if `is_visible` says so (asked in the state that is now), somebody else may go first.
    pub fn act<T>(
        &self,
        actor: usize,
        about_to: impl FnOnce() -> String,
        is_visible: impl Fn(&Scene) -> bool,
        what: impl FnOnce(&mut Shelf) -> T,
    ) -> io::Result<T> {
        let mut play = self.lock();
        if play.director.is_some() && !play.is_over && is_visible(&play.scene) {
            if self.rules.tells {
                play.scene.about_to[actor] = about_to();
            }
            play.scene.parts[actor] = Part::Waits;
            if play.turn == Some(actor) {
                self.decide(&mut play);
            }
            play = self.wait_for_turn(play, actor);
        }
        if play.is_over || play.doomed[actor] {
            return Err(stopped());
        }
        Ok(what(&mut play.scene.shelf))
    }

    fn wait_for_turn<'s>(&'s self, mut play: MutexGuard<'s, Play>, actor: usize) -> MutexGuard<'s, Play> {
        while play.turn != Some(actor) && !play.is_over {
            play = self.turns[actor].wait(play).unwrap_or_else(PoisonError::into_inner);
        }
        play
    }

    /// Remembers what an actor was told.
    pub fn tell(&self, actor: usize, told: u64) {
        let mut play = self.lock();
        let before = play.scene.histories[actor];
        play.scene.histories[actor] = digest((before, told));
    }

    /// From here on only this counts of all that an actor was told.
    pub fn forget_all_but(&self, actor: usize, told: u64) {
        self.lock().scene.histories[actor] = told;
    }

    /// The actor waits for its first turn.
    pub fn enter(&self, actor: usize) {
        drop(self.wait_for_turn(self.lock(), actor));
    }

    /// The actor has done all it had to, and waits until it is killed or all is over.
    pub fn idle(&self, actor: usize) {
        let mut play = self.lock();
        if play.is_over || play.doomed[actor] {
            return;
        }
        play.scene.parts[actor] = Part::Idle;
        self.decide(&mut play);
        drop(self.wait_for_turn(play, actor));
    }

    /// The actor has let go of everything. If it was killed, the others go on.
    pub fn leave(&self, actor: usize) {
        let mut play = self.lock();
        if !play.is_over {
            play.scene.parts[actor] = Part::Gone;
            self.decide(&mut play);
        }
    }

    fn decide(&self, play: &mut Play) {
        let Play { scene, director, turn, doomed, is_over } = play;
        let next = director.as_mut().and_then(|director| director.next(scene));
        match next {
            None => {
                *is_over = true;
                self.turns.iter().for_each(Condvar::notify_all);
                return;
            }
            Some(Choice::Run(actor)) => *turn = Some(actor),
            Some(Choice::Kill(actor)) => {
                doomed[actor] = true;
                *turn = Some(actor);
            }
        }
        if let Some(actor) = *turn {
            self.turns[actor].notify_all();
        }
    }

    /// What was said and acknowledged so far.
    pub fn said<T>(&self, look: impl FnOnce(&mut super::script::Acknowledged) -> T) -> T {
        look(&mut self.lock().scene.said)
    }
}
