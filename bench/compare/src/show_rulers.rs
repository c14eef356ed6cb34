//! What the rulers themselves reach on this machine, without keepstep.

use crate::measure;
use crate::rulers::{
    BARE, Contender, FJALL, RAW, REDB, SQLITE_BATCHED, SQLITE_BIG_PAGES, SQLITE_COMMIT, SQLITE_PER_WRITER,
};
use crate::settings::Settings;
use crate::stats::median;

const WRITERS: [usize; 4] = [1, 8, 64, 512];
const RULERS: [Contender; 7] =
    [RAW, SQLITE_COMMIT, SQLITE_PER_WRITER, SQLITE_BATCHED, SQLITE_BIG_PAGES, FJALL, REDB];

/// Medians of rounds in which every ruler has its turn.
pub fn show(settings: &Settings, only: &str) {
    let rulers: Vec<Contender> = RULERS.into_iter().filter(|ruler| ruler.name.contains(only)).collect();
    println!("records per second, medians of {} rounds", settings.pairs);
    println!("{:<40} {:>9} {:>9} {:>9} {:>9}", "writers", WRITERS[0], WRITERS[1], WRITERS[2], WRITERS[3]);
    let columns: Vec<Vec<f64>> = WRITERS.iter().map(|&writers| column(settings, &rulers, writers)).collect();
    for (row, ruler) in rulers.iter().enumerate() {
        let cells: Vec<String> = columns.iter().map(|column| format!("{:>9.0}", column[row])).collect();
        println!("{:<40} {}", ruler.name, cells.join(" "));
    }
    if BARE.name.contains(only) {
        let mut p50s: Vec<f64> = (0..settings.pairs).map(|_| measure::lone_p50_us(settings, BARE)).collect();
        println!("{:<40} {:>6.0} µs p50", BARE.name, median(&mut p50s));
    }
}

fn column(settings: &Settings, rulers: &[Contender], writers: usize) -> Vec<f64> {
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); rulers.len()];
    for _ in 0..settings.pairs {
        for (ruler, speeds) in rulers.iter().zip(&mut rounds) {
            speeds.push(measure::throughput(settings, *ruler, writers));
        }
    }
    rounds.iter_mut().map(|speeds| median(speeds)).collect()
}
