//! Real processes that put, one killed and one stopped, while this one freezes: an outside oracle of what was acknowledged.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use keepstep::{Error, Options, Store, Value};

use super::{ids, put};

const CHILD: &str = "KEEPSTEP_TEST_PUTTER";
const PUTTERS: usize = 4;

/// Puts until it is fenced, and says what was acknowledged.
fn put_for_ever(dir: &str) {
    let stream = Store::open(dir, Options::default())
        .expect("opens")
        .run("run", Value::Null)
        .expect("opens")
        .stream("s");
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        let id = format!("{}.{number}", std::process::id());
        match put(&stream, &id) {
            Ok(()) => writeln!(out, "put {id}").and_then(|()| out.flush()).expect("says so"),
            Err(Error::Fenced { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[allow(unsafe_code)]
fn signal(child: &Child, signal: i32) {
    // SAFETY: a child of this test that was not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Whatever a process had acknowledged before it was killed, stopped or fenced is frozen.
#[test]
fn what_real_processes_acknowledged_is_frozen() {
    if let Ok(dir) = std::env::var(CHILD) {
        return put_for_ever(&dir);
    }
    let rounds = std::env::var("KEEPSTEP_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut total = 0;
    for round in 0..rounds {
        total += one_round(round);
    }
    println!("{rounds} rounds, {total} entries acknowledged, none lost");
}

fn one_round(round: usize) -> usize {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("putters-{}-{round}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let me = std::env::current_exe().expect("is known");
    let mut children: Vec<Child> = (0..PUTTERS)
        .map(|_| {
            let mut child = Command::new(&me);
            child.args(["--exact", "processes::what_real_processes_acknowledged_is_frozen", "--nocapture"]);
            child.env(CHILD, &dir).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts")
        })
        .collect();
    let (acknowledged, count) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    let frozen = std::thread::scope(|scope| {
        for child in &mut children {
            let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
            let (acknowledged, count) = (&acknowledged, &count);
            scope.spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let Some((_, id)) = line.split_once("put ") else { continue };
                    acknowledged.lock().unwrap().insert(id.to_owned());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Some are in the middle of it, each round at another place.
        while count.load(Ordering::Relaxed) < 20 + 7 * round {
            std::thread::yield_now();
        }
        signal(&children[0], libc::SIGKILL);
        signal(&children[1], libc::SIGSTOP);
        let store = Store::open(&dir, Options::default()).expect("opens");
        let frozen = store.run("run", Value::Null).expect("opens").stream("s").freeze().expect("freezes");
        signal(&children[1], libc::SIGCONT);
        frozen
    });
    let ended: Vec<bool> = children.iter_mut().map(|child| child.wait().expect("ends").success()).collect();
    assert_eq!(ended, [false, true, true, true], "one was killed, the others were fenced");
    let acknowledged = acknowledged.into_inner().unwrap();
    let lost: Vec<_> = acknowledged.difference(&ids(&frozen)).cloned().collect();
    assert!(lost.is_empty(), "round {round}: {lost:?}");
    let store = Store::open_existing(&dir, Options::default()).expect("opens");
    assert_eq!(store.run("run", Value::Null).expect("opens").stream("s").read().expect("reads"), frozen);
    assert!(store.verify(&mut |_| {}).expect("verifies").is_whole());
    drop(store);
    std::fs::remove_dir_all(&dir).expect("is gone");
    acknowledged.len()
}
