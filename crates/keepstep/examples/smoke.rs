//! throw-away
use keepstep::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let writers: usize = args[2].parse().unwrap();
    let store = Store::open(&args[1], Options::default()).unwrap();
    let run = store.run("bench", Value::Null).unwrap();
    let count = std::sync::atomic::AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|s| {
        for w in 0..writers {
            let run = &run; let count = &count;
            s.spawn(move || {
                let ep = run.episode(EpisodeName{task: "t".into(), iteration:0, sample: w as i64}).unwrap();
                let mut x = (w as u64 + 1) * 0x9E3779B97F4A7C15;
                let mut lat = vec![];
                while start.elapsed().as_millis() < 1500 {
                    let data: Vec<u8> = (0..256).flat_map(|_| { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x.to_le_bytes() }).collect();
                    let t = Instant::now();
                    ep.step(Step::new().observation(Value::bytes(data))).unwrap();
                    lat.push(t.elapsed());
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                if w == 0 { lat.sort(); println!("p50 {:?}", lat[lat.len()/2]); }
                ep.end("finished", Step::new()).unwrap().wait().unwrap();
            });
        }
    });
    let n = count.load(std::sync::atomic::Ordering::Relaxed);
    println!("{} writers: {:.0}/s {:?}", writers, n as f64 / start.elapsed().as_secs_f64(), store.writer_stats());
    store.close();
    let out = std::process::Command::new("du").args(["-sb", &args[1]]).output().unwrap();
    println!("{} ratio", String::from_utf8_lossy(&out.stdout).split_whitespace().next().unwrap().parse::<f64>().unwrap() / (n as f64 * 2048.0));
}
