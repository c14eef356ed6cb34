//! A tool for the maintainers of keepstep, not an example of its use: makes a golden store, by
//! `cargo run --example golden -- KIND DIR`. It is among the examples because cargo
//! builds it there without making it part of the crate.
//!
//! The stores in `tests/golden/` were made by this, once, and stay as they are: every later version must read them.
//! A new kind may be added; an old one is never made again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool for us, which must stop at the first error"
)]

use std::sync::Arc;
use std::time::Duration;

use keepstep::format::value::{Array, Dtype};
use keepstep::tend::CompactOptions;
use keepstep::{
    Ending, Entry, Episode, EpisodeName, Level, Options, Result, Run, Step, Store, Tokens, Value,
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (kind, dir) = (arguments.next().expect("KIND"), arguments.next().expect("DIR"));
    match kind.as_str() {
        "values" => values(&open(&dir, Options::default())?),
        "histories" => histories(&open(&dir, Options::default().segment_bytes_max(12_000))?),
        "slides" => slides(&open(&dir, Options::default().segment_bytes_max(40_000))?),
        "dictionary" => dictionary(&open(&dir, Options::default())?),
        "chunks" => chunks(&open(&dir, Options::default())?),
        "killed" => killed(&open(&dir, Options::default())?),
        "grouped" => grouped(&dir),
        "summaries" => summaries(&dir),
        "summaries-killed" => {
            summarised(&dir, arguments.next().expect("PART").parse().expect("a number"), true)
        }
        other => panic!("no kind {other:?}"),
    }
}

fn open(dir: &str, options: Options) -> Result<Run> {
    let store = Store::open(dir, options)?;
    store.run("golden", Value::map([("made by", Value::from("keepstep 0.1, format 1"))]))
}

fn begin(run: &Run, sample: i64) -> Result<Episode> {
    run.episode(EpisodeName::task("gold/ünïcode #1").iteration(3).sample(sample))
}

/// The same on every machine.
fn noise(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    }
}

fn text(seed: u64, length: usize) -> String {
    let mut next = noise(seed);
    (0..length).map(|_| char::from(b'a' + next() % 26)).collect()
}

fn array(dtype: Dtype, shape: &[u64], seed: u64) -> Value {
    let mut next = noise(seed);
    let bytes = shape.iter().product::<u64>() as usize * dtype.item_bytes();
    let data = (0..bytes).map(|_| next()).collect();
    Value::Array(Arc::new(Array::new(dtype, shape.to_vec(), data).expect("fits")))
}

/// Every kind of value, short and long.
fn values(run: &Run) -> Result<()> {
    let recorder = begin(run, 0)?;
    recorder.first(Step::new().observation("the first").info(Value::Null))?.wait()?;
    let scalars = [
        Value::Null,
        Value::Bool(true),
        Value::Bool(false),
        Value::Int(0),
        Value::Int(i64::MIN),
        Value::Int(i64::MAX),
        Value::Float(0.1),
        Value::Float(-0.0),
        Value::Float(f64::NAN),
        Value::Float(f64::INFINITY),
        Value::Big { negative: true, magnitude: Arc::from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) },
        Value::from("snow \u{2603} and \u{1f9ca}, \"quoted\"\n"),
        Value::bytes([0, 255, 7]),
        Value::Media(Arc::from("image/png"), Arc::from([0x89, b'P', b'N', b'G'])),
        Value::Typed(Arc::from("datetime.date"), Arc::new(Value::from("2026-11-15"))),
        Value::Repr(Arc::from("socket.socket"), Arc::from("<socket fd=7>")),
        Value::list([]),
        Value::map::<&str>([]),
    ];
    for value in scalars {
        recorder.step(Step::new().observation(value))?;
    }
    for (number, dtype) in Dtype::ALL.into_iter().enumerate() {
        let shape: &[u64] = if number % 3 == 0 { &[2, 3] } else { &[7] };
        recorder.step(Step::new().observation(array(dtype, shape, number as u64)))?;
    }
    let long = [
        Value::from(text(1, 10_000)),
        Value::bytes(text(2, 9000)),
        array(Dtype::F32, &[40, 50], 3),
        Value::Media(Arc::from("image/jpeg"), Arc::from(text(4, 3000).as_bytes())),
        Value::Repr(Arc::from("T"), Arc::from(text(5, 700))),
        Value::Typed(Arc::from("Page"), Arc::new(Value::map([("html", Value::from(text(1, 10_000)))]))),
    ];
    for value in long.iter().chain(long.iter()) {
        recorder.step(
            Step::new()
                .observation(value.clone())
                .reward(1.5)
                .reward_terms([("goal", 0.5), ("format", f64::NAN)]),
        )?;
    }
    let tokens = Tokens::default()
        .prompt(array(Dtype::I32, &[300], 6))
        .ids(array(Dtype::I32, &[20], 7))
        .logprobs(array(Dtype::F32, &[20], 8))
        .mask(array(Dtype::Bool, &[20], 9))
        .arrays([("experts", array(Dtype::U8, &[20, 8], 10))]);
    let full =
        Step::new().action("go").discount(0.99).prompt("p").response("r").tokens(tokens).policy(7).agent("a");
    recorder.step(full.state([("messages", Value::list([Value::from("p")]))]))?;
    recorder.end("truncated", Ending::default())?.wait()
}

/// Histories that slide: a window that moves, one that keeps its first message, and one whose middle is summed up.
fn slides(run: &Run) -> Result<()> {
    for sample in 0..3u64 {
        let recorder = begin(run, sample as i64)?;
        let message =
            |turn: u64| Value::from(text(turn * 10 + sample, if turn.is_multiple_of(3) { 90 } else { 300 }));
        let mut window: Vec<Value> = (0..14).map(message).collect();
        for turn in 14..54u64 {
            recorder.step(Step::new().prompt(Value::list(window.iter().cloned())))?;
            window.remove(usize::from(sample > 0));
            if sample == 2 && turn.is_multiple_of(9) {
                window.splice(1..3, [Value::from(text(turn, 500))]);
            }
            window.extend((0..turn % 3).map(|more| message(100 * turn + more)));
        }
        recorder.end("finished", Ending::default())?.wait()?;
    }
    Ok(())
}

/// Growing lists, strings and arrays of two episodes that share their beginning, across many segments.
fn histories(run: &Run) -> Result<()> {
    let recorders: Vec<Episode> = (0..2).map(|sample| begin(run, sample)).collect::<Result<_>>()?;
    let system = Value::map([("role", Value::from("system")), ("content", Value::from(text(99, 5000)))]);
    for step in 0..40u64 {
        for (sample, recorder) in recorders.iter().enumerate() {
            let message = |turn: u64| Value::from(text(turn * 10 + sample as u64, 280));
            let prompt = std::iter::once(system.clone()).chain((0..step).map(message));
            let ids = 900 + 40 * step;
            let data = (0..ids as u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
            let ids = Array::new(Dtype::U32, vec![ids], data).expect("fits");
            let transcript = text(7, 4000 + 100 * step as usize);
            let recorded = Step::new().prompt(Value::list(prompt)).observation(Value::Array(Arc::new(ids)));
            recorder.step(recorded.info(Value::from(transcript)).reward(step as f64))?;
        }
    }
    recorders.iter().try_for_each(|recorder| recorder.end("finished", Ending::default())?.wait())
}

/// The same, compacted: in blocks, what both share in one of its own; half of it waits to be deleted.
fn grouped(dir: &str) -> Result<()> {
    let options = Options::default().segment_bytes_max(12_000);
    histories(&open(dir, options.clone())?)?;
    let compact =
        CompactOptions::default().grace(Duration::ZERO).segment_bytes_max(1 << 20).block_bytes_max(180_000);
    for _ in 0..2 {
        Store::open(dir, options.clone())?.compact(compact.clone(), &mut |_| {})?;
    }
    let run = open(dir, options.clone())?;
    let recorder = begin(&run, 7)?;
    recorder.step(Step::new().observation("a log that was replaced, and is still there"))?;
    recorder.end("finished", Ending::default())?.wait()?;
    drop((recorder, run));
    Store::open(dir, options)?.compact(compact, &mut |_| {}).map(drop)
}

/// Short steps that are alike: a dictionary is trained, and the later ones need it.
fn dictionary(run: &Run) -> Result<()> {
    let recorder = begin(run, 0)?;
    for step in 0..2600u64 {
        let json = format!(
            "{{\"tool\": \"search\", \"arguments\": {{\"query\": \"{}\", \"limit\": {}}}, \"status\": \"ok\", \"results\": [{{\"title\": \"{}\", \"score\": 0.{}}}]}}",
            text(step, 60),
            step % 20,
            text(step * 3, 90),
            step * 7919 % 1000
        );
        recorder.record(
            Entry::step(Step::new().observation(Value::from(json.repeat(2).as_str()))).waiting_for_room(),
        )?;
        if step % 100 == 99 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    recorder.end("finished", Ending::default())?.wait()
}

/// A step that is longer than a frame.
fn chunks(run: &Run) -> Result<()> {
    let recorder = begin(run, 0)?;
    let mut next = noise(11);
    recorder.step(Step::new().observation("before"))?;
    recorder.step(
        Step::new().observation(Value::bytes((0..(1 << 20) + 5000).map(|_| next()).collect::<Vec<u8>>())),
    )?;
    recorder.step(Step::new().observation("after"))?;
    recorder.end("finished", Ending::default())?.wait()
}

/// A process that died: its segment is not sealed, its last step was only written.
fn killed(run: &Run) -> Result<()> {
    let recorder = begin(run, 0)?;
    for step in 0..5i64 {
        recorder.step(Step::new().observation(Value::Int(step)))?;
    }
    recorder.record(Entry::step(Step::new().observation("survives a kill")).at(Level::Kill))?.wait()?;
    std::process::abort();
}

/// What is summed up, with and without rewards, under long names and short ones: compacted (iterations 0 and 1), closed (2),
/// killed and then scanned (3), killed (4).
fn summaries(dir: &str) -> Result<()> {
    let killed = |part: i64| {
        let this = std::env::current_exe().expect("is known");
        let arguments = ["summaries-killed", dir, &part.to_string()];
        std::process::Command::new(this).args(arguments).status().expect("runs");
    };
    summarised(dir, 0, false)?;
    killed(1);
    let compact = CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        Store::open(dir, Options::default())?.compact(compact.clone(), &mut |_| {})?;
    }
    summarised(dir, 2, false)?;
    killed(3);
    Store::open(dir, Options::default())?.catalog()?.attempts()?;
    killed(4);
    Ok(())
}

fn summarised(dir: &str, iteration: i64, dies: bool) -> Result<()> {
    let store = Store::open(dir, Options::default().segment_bytes_max(3000))?;
    let run = store.run(&text(1, 300), Value::Null)?;
    let begin = |task: &str, sample| run.episode(EpisodeName::task(task).iteration(iteration).sample(sample));
    let rewards: [&[Option<f64>]; 6] = [
        &[None, None],
        &[Some(0.0), Some(0.0)],
        &[None, Some(1.5), None],
        &[Some(f64::NAN)],
        &[Some(0.5), Some(-0.5)],
        &[],
    ];
    for task in [text(2, 400), "short".to_owned()] {
        for (sample, rewards) in rewards.into_iter().enumerate() {
            let recorder = begin(&task, sample as i64)?;
            for reward in rewards {
                recorder.step(Step::new().observation(text(sample as u64, 350)).reward(*reward))?;
            }
            recorder.end("finished", Ending::default())?.wait()?;
        }
        let recorder = begin(&task, 6)?;
        recorder.step(Step::new().action(1))?;
        recorder.step(Step::new().action(2).reward(2.0))?;
        std::thread::sleep(Duration::from_millis(5));
        recorder.note("score", Value::Float(1.0), "judge", None)?.wait()?;
        if dies {
            // Dropped, it would say that it was aborted.
            std::mem::forget(recorder);
        } else {
            recorder.end("truncated", Ending::default())?.wait()?;
        }
    }
    if dies { std::process::abort() } else { Ok(()) }
}
