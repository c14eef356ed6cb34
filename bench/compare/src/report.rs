//! Holds what was measured against `bench/bars.toml`, prints a table, and writes it down as JSON.
//!
//! A bar that nothing was measured for is a failure: a row must never vanish in silence.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bars::Got;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    AtLeast,
    AtMost,
}

/// What must be reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    pub name: String,
    pub what: String,
    pub need: f64,
    pub sense: Sense,
    pub unit: String,
}

#[derive(Deserialize)]
struct Bars {
    bar: Vec<Bar>,
}

/// What was reached. Without `got` the bar was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub got: Option<f64>,
    pub need: f64,
    pub sense: Sense,
    pub unit: String,
    pub ok: bool,
    #[serde(skip)]
    what: String,
}

pub fn load_bars(path: &Path) -> Vec<Bar> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("could not read {}: {error}", path.display()));
    parse_bars(&text)
}

fn parse_bars(text: &str) -> Vec<Bar> {
    toml::from_str::<Bars>(text).unwrap_or_else(|error| panic!("bars.toml is not as expected: {error}")).bar
}

/// A row for every bar, in the order of the file.
pub fn judge(bars: &[Bar], measured: &[Got]) -> Vec<Row> {
    bars.iter().map(|bar| judge_one(bar, measured)).collect()
}

fn judge_one(bar: &Bar, measured: &[Got]) -> Row {
    let got = measured.iter().find(|got| got.name == bar.name).map(|got| got.value);
    let ok = got.is_some_and(|got| match bar.sense {
        Sense::AtLeast => got >= bar.need,
        Sense::AtMost => got <= bar.need,
    });
    let (name, unit, what) = (bar.name.clone(), bar.unit.clone(), bar.what.clone());
    Row { name, got, need: bar.need, sense: bar.sense, unit, ok, what }
}

pub fn print_table(rows: &[Row]) {
    println!("\n{:<24} {:>9} {:>11}  {:<5} {:<7} what", "name", "got", "need", "unit", "ok");
    for row in rows {
        let got = row.got.map_or("-".to_owned(), number);
        let sign = if row.sense == Sense::AtLeast { "≥" } else { "≤" };
        let need = format!("{sign} {}", number(row.need));
        println!("{:<24} {got:>9} {need:>11}  {:<5} {:<7} {}", row.name, row.unit, verdict(row), row.what);
    }
    let failed: Vec<&str> = rows.iter().filter(|row| !row.ok).map(|row| row.name.as_str()).collect();
    if failed.is_empty() {
        println!("\nAll {} bars are met.", rows.len());
    } else {
        println!("\n{} of {} BARS ARE NOT MET: {}", failed.len(), rows.len(), failed.join(", "));
    }
}

fn verdict(row: &Row) -> &'static str {
    match (row.got, row.ok) {
        (None, _) => "MISSING",
        (Some(_), false) => "MISSED",
        (Some(_), true) => "ok",
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

pub fn write_json(path: &Path, rows: &[Row]) {
    let json = serde_json::to_string_pretty(rows).expect("rows are plain numbers and texts");
    let parent = path.parent().expect("the report lies in a folder");
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, json + "\n"))
        .unwrap_or_else(|error| panic!("could not write {}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bars::MEASUREMENTS;

    /// A bar that nobody measures, or a number that no bar asks for, is a slip of the pen.
    #[test]
    fn every_bar_has_a_measurement_and_every_measurement_a_bar() {
        let bars = load_bars(&crate::settings::repository().join("bench/bars.toml"));
        let needed: BTreeSet<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        let measured: BTreeSet<&str> = MEASUREMENTS.iter().flat_map(|one| one.bars).copied().collect();
        assert_eq!(needed, measured);
        assert_eq!(bars.len(), needed.len(), "a name stands twice in bars.toml");
    }

    #[test]
    fn a_bar_is_met_from_its_number_on_and_missing_without_one() {
        let text = r#"
            bar = [
                { name = "more", what = "", need = 2, sense = "at_least", unit = "x" },
                { name = "less", what = "", need = 2, sense = "at_most", unit = "x" },
                { name = "none", what = "", need = 2, sense = "at_most", unit = "x" },
            ]"#;
        let bars = parse_bars(text);
        let oks = |value| {
            let got = [Got { name: "more", value }, Got { name: "less", value }];
            judge(&bars, &got).iter().map(|row| row.ok).collect::<Vec<_>>()
        };
        assert_eq!(oks(2.0), [true, true, false]);
        assert_eq!(oks(3.0), [true, false, false]);
        assert_eq!(oks(1.0), [false, true, false]);
        assert_eq!(oks(f64::NAN), [false, false, false]);
    }
}
