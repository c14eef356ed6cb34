//! What is written for others to read: valid JSON whatever was recorded, and a file that is whole or not there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use keepstep_format::value::{Array, Dtype, Value};

use super::json::{big_digits, is_hostile, write_text, write_value};

fn json(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value).unwrap();
    out
}

fn array(dtype: Dtype, shape: Vec<u64>, data: Vec<u8>) -> Value {
    Value::Array(Arc::new(Array::new(dtype, shape, data).unwrap()))
}

#[test]
fn a_value_looks_as_one_expects_and_the_rest_is_marked() {
    let floats: Vec<u8> = [0.1f32, f32::NAN, 1e30].iter().flat_map(|x| x.to_le_bytes()).collect();
    let cases = [
        (Value::map([("role", Value::from("user")), ("n", Value::Int(7))]), r#"{"role":"user","n":7}"#),
        (Value::map([("$float", Value::from("nan"))]), r#"{"$map":[["$float","nan"]]}"#),
        (Value::map([(Value::Int(1), Value::Null)]), r#"{"$map":[[1,null]]}"#),
        (Value::list([Value::Bool(true), Value::list([])]), "[true,[]]"),
        (Value::bytes([]), r#"{"$bytes":""}"#),
        (Value::bytes([0]), r#"{"$bytes":"AA=="}"#),
        (Value::bytes([0, 255]), r#"{"$bytes":"AP8="}"#),
        (Value::bytes(b"any carnal pleas"), r#"{"$bytes":"YW55IGNhcm5hbCBwbGVhcw=="}"#),
        (Value::bytes(b"any carnal pleasur"), r#"{"$bytes":"YW55IGNhcm5hbCBwbGVhc3Vy"}"#),
        (
            array(Dtype::F32, vec![3], floats),
            r#"{"$array":"float32","shape":[3],"data":[0.1,{"$float":"nan"},1e30]}"#,
        ),
        (
            array(Dtype::I16, vec![1, 2], vec![255, 255, 7, 0]),
            r#"{"$array":"int16","shape":[1,2],"data":[-1,7]}"#,
        ),
        (array(Dtype::Bf16, vec![1], vec![0, 255]), r#"{"$array":"bfloat16","shape":[1],"bytes":"AP8="}"#),
        (
            Value::Big { negative: true, magnitude: Arc::from([0u8, 0, 0, 0, 0, 0, 0, 0, 1].as_slice()) },
            "-18446744073709551616",
        ),
        (
            Value::Media(Arc::from("image/png"), Arc::from([1u8].as_slice())),
            r#"{"$media":"image/png","bytes":"AQ=="}"#,
        ),
        (Value::Typed(Arc::from("Move"), Arc::new(Value::Int(3))), r#"{"$type":"Move","value":3}"#),
        (Value::Repr(Arc::from("socket"), Arc::from("<s>")), r#"{"$repr":"<s>","type":"socket"}"#),
        (Value::Lost([0xab; 16]), r#"{"$lost":"abababababababababababababababab"}"#),
    ];
    for (recorded, known) in cases {
        assert_eq!(json(&recorded), known, "{recorded:?}");
    }
}

/// It is read by other programs: whatever was recorded, it must parse.
#[test]
fn every_float_and_every_character_is_valid_json() {
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1.0, 0.1, 1e300, 5e-324];
    let printed: Vec<String> = floats.into_iter().map(|x| json(&Value::Float(x))).collect();
    let known = [
        r#"{"$float":"nan"}"#,
        r#"{"$float":"inf"}"#,
        r#"{"$float":"-inf"}"#,
        "-0.0",
        "1.0",
        "0.1",
        "1e300",
        "5e-324",
    ];
    assert_eq!(printed, known);
    let mut text = String::new();
    write_text(&mut text, "a\"b\\c\n\t\r\u{1}\u{7f}\u{202e}\u{e0001}Käse🧀").unwrap();
    assert_eq!(text, r#""a\"b\\c\n\t\r\u0001\u007f\u202e\udb40\udc01Käse🧀""#);
}

/// Wherever a character stands among others, it is escaped as if it were looked at alone: plain ones are skipped many at
/// once.
#[test]
fn a_character_is_escaped_wherever_it_stands() {
    let alone = |c: char| {
        let mut out = String::new();
        match c {
            '"' | '\\' => write!(out, "\\{c}").unwrap(),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hostile(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| write!(out, "\\u{unit:04x}").unwrap());
            }
            c => out.push(c),
        }
        out
    };
    let written = |text: &str| {
        let mut out = String::new();
        write_text(&mut out, text).unwrap();
        out
    };
    for c in '\0'..=char::MAX {
        assert_eq!(written(&format!("a{c}b")), format!("\"a{}b\"", alone(c)), "{:x}", u32::from(c));
    }
    for c in ['"', '\\', '\n', '\u{1f}', '\u{7f}', '\u{80}', 'ä', '語', '\u{202e}', '🧀'] {
        for (before, behind) in (0..100).flat_map(|before| [0, 1, 31, 32, 33].map(|behind| (before, behind)))
        {
            let (before, behind) = (" ~".repeat(before), "!".repeat(behind));
            let text = format!("{before}{c}{c}{behind}{c}");
            let known = format!("\"{before}{0}{0}{behind}{0}\"", alone(c));
            assert_eq!(written(&text), known, "{:x} behind {}", u32::from(c), before.len());
        }
    }
}

#[test]
fn big_integers_keep_every_digit() {
    assert_eq!(big_digits(false, &(u128::MAX).to_le_bytes()), u128::MAX.to_string());
    assert_eq!(big_digits(true, &1_000_000_000u64.to_le_bytes()), "-1000000000");
    assert_eq!(big_digits(false, &[]), "0");
}

#[cfg(feature = "simulate")]
mod power_cuts {
    use super::*;
    use crate::disk::sim::{SimDisk, Trace};
    use crate::disk::{Cards, Directory, Files, read_file};
    use crate::export::NewFile;

    const NAME: &str = "steps.jsonl";
    const WRITTEN: u64 = 1;

    /// Writes a file over an older one.
    fn traced(write: impl Fn(Arc<dyn Files>, &[u8])) -> Trace {
        let sim = SimDisk::new(7);
        let disk = sim.process();
        Directory::over(disk.clone()).put(NAME, b"old").unwrap();
        sim.event(0);
        write(disk, &new_content());
        sim.event(WRITTEN);
        sim.trace()
    }

    fn new_content() -> Vec<u8> {
        (0..3000u32).flat_map(|number| format!("{{\"index\":{number}}}\n").into_bytes()).collect()
    }

    /// Looks at every state that a cut can leave. Gives how many, and what is wrong in them.
    fn look(trace: &Trace) -> (u64, Vec<String>) {
        let (mut states, mut wrong) = (0, Vec::new());
        for cut in 0..trace.cuts() {
            let events = trace.events_before(cut);
            if events.is_empty() {
                continue;
            }
            for index in 0..trace.state_count(cut).min(500) {
                states += 1;
                let found = read_file(&*trace.state(cut, index).process(), NAME).unwrap_or_default();
                let is_new = found == new_content();
                if !(is_new || found == b"old" && !events.contains(&WRITTEN)) {
                    wrong.push(format!("cut {cut}, state {index}: {} bytes", found.len()));
                }
            }
        }
        (states, wrong)
    }

    /// Wherever the power fails, the old file or the new one is there, whole; the new one once it was kept.
    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let trace = traced(|disk, content| {
            let mut file = NewFile::on_disk(disk, NAME).unwrap();
            content.chunks(1000).for_each(|part| file.write_all(part).unwrap());
            file.keep().unwrap();
        });
        let (states, wrong) = look(&trace);
        println!("{states} states after {} cuts", trace.cuts());
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(states > 20, "only {states} states");
    }

    /// The same without a sync of the content must be caught, or the test proves nothing.
    #[test]
    fn a_name_before_the_content_is_caught() {
        let trace = traced(|disk, content| {
            let file = disk.create_new("temporary").unwrap();
            file.write_at(content, 0).unwrap();
            disk.rename("temporary", NAME).unwrap();
            disk.sync_dir("").unwrap();
        });
        assert!(!look(&trace).1.is_empty());
    }

    /// What is not kept leaves nothing behind.
    #[test]
    fn a_file_that_is_dropped_is_gone() {
        let sim = SimDisk::new(7);
        let disk = sim.process();
        Directory::over(disk.clone()).put(NAME, b"old").unwrap();
        let mut file = NewFile::on_disk(disk.clone(), NAME).unwrap();
        file.write_all(b"half of").unwrap();
        file.flush().unwrap();
        drop(file);
        let files = sim.files();
        assert_eq!(files, [(NAME.to_owned(), b"old".to_vec())]);
    }
}
