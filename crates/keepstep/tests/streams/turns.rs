//! Runs several processes on one simulated disk, one call at a time, in an order that is chosen from outside.
//!
//! Only calls by which processes see one another are places where another may go on: the others change nothing for anybody.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};

/// Says who is next: given who could go on.
pub type Choose = Box<dyn FnMut(&[usize]) -> usize + Send>;

/// Whose turn it is.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    choose: Choose,
    now: usize,
    is_over: Vec<bool>,
    /// How many calls each process made.
    calls: Vec<usize>,
}

impl Turns {
    fn pass_on(state: &mut State) {
        let can: Vec<usize> = (0..state.is_over.len()).filter(|who| !state.is_over[*who]).collect();
        if !can.is_empty() {
            state.now = (state.choose)(&can);
        }
    }

    /// Waits for the turn before a call; giving up the one before. Gives how many calls it makes with this one.
    fn before_call(&self, who: usize) -> usize {
        let mut state = self.state.lock().unwrap();
        if state.calls[who] > 0 {
            Self::pass_on(&mut state);
            self.changed.notify_all();
        }
        state.calls[who] += 1;
        while state.now != who {
            state = self.changed.wait(state).unwrap();
        }
        state.calls[who]
    }

    fn over(&self, who: usize) {
        let mut state = self.state.lock().unwrap();
        state.is_over[who] = true;
        if state.now == who {
            Self::pass_on(&mut state);
        }
        self.changed.notify_all();
    }
}

/// What a process does with its disk.
pub type Work = Box<dyn FnOnce(Arc<dyn Files>) + Send>;

/// Runs all processes to their end, in the chosen order. Gives how many calls each made.
pub fn run(sim: &SimDisk, work: Vec<Work>, choose: Choose) -> Vec<usize> {
    run_until(sim, work, choose, &[])
}

/// As [`run`], but some are killed instead of making their n-th call.
pub fn run_until(sim: &SimDisk, work: Vec<Work>, choose: Choose, killed_at: &[(usize, usize)]) -> Vec<usize> {
    let count = work.len();
    let mut state = State { choose, now: 0, is_over: vec![false; count], calls: vec![0; count] };
    Turns::pass_on(&mut state);
    let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
    std::thread::scope(|scope| {
        for (who, work) in work.into_iter().enumerate() {
            let turns = Arc::clone(&turns);
            let killed_at = killed_at.iter().find(|(whom, _)| *whom == who).map(|(_, at)| *at);
            let player = Player { process: sim.process(), turns: Arc::clone(&turns), who, killed_at };
            let disk: Arc<dyn Files> = Arc::new(Turning(player));
            scope.spawn(move || {
                // Also when it panics, or the others would wait for ever.
                struct Over(Arc<Turns>, usize);
                impl Drop for Over {
                    fn drop(&mut self) {
                        self.0.over(self.1);
                    }
                }
                let _over = Over(turns, who);
                work(disk);
            });
        }
    });
    let state = turns.state.lock().unwrap();
    state.calls.clone()
}

/// `first` makes so many calls, then `second` so many, then the first goes on to its end, then the others.
pub fn two_switches(first: usize, calls: usize, second: usize, more: usize) -> Choose {
    let (mut left_first, mut left_second) = (calls, more);
    Box::new(move |can| {
        let pick = |who: usize, left: &mut usize| {
            let may = *left > 0 && can.contains(&who);
            *left = left.saturating_sub(usize::from(may));
            may.then_some(who)
        };
        pick(first, &mut left_first)
            .or_else(|| pick(second, &mut left_second))
            .or(can.contains(&first).then_some(first))
            .unwrap_or(can[0])
    })
}

/// Any order, by seed.
pub fn at_random(seed: u64) -> Choose {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Box::new(move |can| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        can[(x >> 20) as usize % can.len()]
    })
}

/// A process, as the order sees it.
#[derive(Clone)]
struct Player {
    process: Arc<SimProcess>,
    turns: Arc<Turns>,
    who: usize,
    killed_at: Option<usize>,
}

impl Player {
    fn turn(&self) {
        let calls = self.turns.before_call(self.who);
        if self.killed_at.is_some_and(|at| calls >= at) {
            self.process.kill();
        }
    }
}

struct Turning(Player);

struct TurningFile {
    file: Arc<dyn File>,
    player: Player,
    is_log: bool,
}

impl Turning {
    fn file(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        // A segment is made under another name.
        let is_log = path.ends_with(".seg") || path.contains("/.tmp-");
        Arc::new(TurningFile { file, player: self.0.clone(), is_log })
    }
}

impl Clock for Turning {
    fn now_us(&self) -> i64 {
        self.0.process.now_us()
    }

    fn uptime_us(&self) -> i64 {
        self.0.process.uptime_us()
    }

    fn random(&self, out: &mut [u8]) -> std::io::Result<()> {
        self.0.process.random(out)
    }

    fn sleep(&self, time: Duration) {
        self.0.process.sleep(time);
    }
}

impl Files for Turning {
    fn link(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.0.turn();
        self.0.process.link(from, to)
    }

    fn lock_state(&self, path: &str) -> std::io::Result<LockState> {
        self.0.process.lock_state(path)
    }

    fn list(&self, path: &str) -> std::io::Result<Vec<DirEntry>> {
        self.0.turn();
        self.0.process.list(path)
    }

    fn exists(&self, path: &str) -> std::io::Result<bool> {
        self.0.turn();
        self.0.process.exists(path)
    }

    fn create_new(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.0.process.create_new(path)?))
    }

    fn open(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.0.process.open(path)?))
    }

    fn open_rw(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.0.process.open_rw(path)?))
    }

    fn create_dir(&self, path: &str) -> std::io::Result<()> {
        self.0.process.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> std::io::Result<()> {
        self.0.process.sync_dir(path)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.0.process.rename(from, to)
    }

    fn remove(&self, path: &str) -> std::io::Result<()> {
        self.0.process.remove(path)
    }

    fn file_system(&self) -> std::io::Result<FileSystem> {
        self.0.process.file_system()
    }

    fn watch(&self, dirs: &[String]) -> std::io::Result<Box<dyn Watch>> {
        self.0.process.watch(dirs)
    }

    fn boot_id(&self) -> String {
        self.0.process.boot_id()
    }
}

impl TurningFile {
    fn turn(&self) {
        if self.is_log {
            self.player.turn();
        }
    }
}

impl File for TurningFile {
    fn write_at(&self, data: &[u8], offset: u64) -> std::io::Result<()> {
        self.turn();
        self.file.write_at(data, offset)
    }
    fn bytes(&self) -> std::io::Result<u64> {
        self.turn();
        self.file.bytes()
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.turn();
        self.file.read_at(out, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.turn();
        self.file.sync()
    }
    fn links(&self) -> std::io::Result<u64> {
        self.file.links()
    }
    fn try_lock(&self) -> std::io::Result<bool> {
        self.file.try_lock()
    }
}
