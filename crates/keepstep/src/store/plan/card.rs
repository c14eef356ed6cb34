//! Reads a PLAN card. A card may have a hundred thousand entries, so no value is made for each.

use std::collections::BTreeSet;

use keepstep_format::bytes::{Cursor, unzigzag};
use keepstep_format::decode::{NoBodies, read_fields};
use keepstep_format::fields;
use keepstep_format::value::{Value, tag};

/// The tasks of a card.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct PlanCard<'b> {
    pub(in crate::store) entries: Vec<TaskSamples<'b>>,
    pub(in crate::store) needs: BTreeSet<String>,
}

/// A task and its number of samples.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct TaskSamples<'b> {
    pub(in crate::store) task: std::borrow::Cow<'b, str>,
    pub(in crate::store) iteration: i64,
    pub(in crate::store) samples: i64,
}

impl<'b> PlanCard<'b> {
    /// `None` if the body is not a plan.
    pub(in crate::store) fn read(body: &'b [u8]) -> Option<Self> {
        // Another version of keepstep may have written the fields in another order, or more of them.
        Self::read_as_we_write(body).or_else(|| Self::read_any(body))
    }

    /// Reads a card that [`Run::plan`](crate::store::run::Run::plan) wrote; `None` if it is anything else.
    fn read_as_we_write(body: &'b [u8]) -> Option<Self> {
        let mut at = Cursor::new(body);
        let mut card = Self::default();
        let mut before = 0;
        for _ in 0..at.varint().ok()? {
            let field = at.varint().ok().filter(|field| *field > before)?;
            before = field;
            match u8::try_from(field).ok()? {
                fields::PLANNED => {
                    let count = list(&mut at)?;
                    card.entries = (0..count).map(|_| entry(&mut at)).collect::<Option<_>>()?;
                }
                fields::NEEDS => {
                    let count = list(&mut at)?;
                    card.needs =
                        (0..count).map(|_| text(&mut at).map(str::to_owned)).collect::<Option<_>>()?;
                }
                fields::TIME => int(&mut at).map(|_| ())?,
                fields::WRITER => (at.u8().ok()? == tag::BYTES).then(|| at.blob().ok())?.map(|_| ())?,
                _ => return None,
            }
        }
        at.is_at_end().then_some(card)
    }

    fn read_any(body: &[u8]) -> Option<Self> {
        let body = keepstep_format::decode::Body { raw: body.to_vec(), references: Vec::new() };
        let found = read_fields(&body, &mut NoBodies).ok()?;
        let get = |number: u8| found.iter().find(|(it, _)| *it == number).map(|(_, value)| value);
        let entry = |it: &Value| {
            Some(TaskSamples {
                task: it.get("task")?.as_str()?.to_owned().into(),
                iteration: it.get("iteration")?.as_int()?,
                samples: it.get("samples")?.as_int()?,
            })
        };
        let entries = get(fields::PLANNED)?.as_list()?.iter().map(entry).collect::<Option<_>>()?;
        let text = |it: &Value| it.as_str().map(str::to_owned);
        let needs = match get(fields::NEEDS) {
            None => BTreeSet::new(),
            Some(needs) => needs.as_list()?.iter().map(text).collect::<Option<_>>()?,
        };
        Some(Self { entries, needs })
    }
}

fn list(at: &mut Cursor<'_>) -> Option<usize> {
    (at.u8().ok()? == tag::LIST).then(|| at.count(1).ok())?
}

fn text<'b>(at: &mut Cursor<'b>) -> Option<&'b str> {
    (at.u8().ok()? == tag::STR).then(|| at.text().ok())?
}

fn int(at: &mut Cursor<'_>) -> Option<i64> {
    (at.u8().ok()? == tag::INT).then(|| at.varint().ok().map(unzigzag))?
}

fn entry<'b>(at: &mut Cursor<'b>) -> Option<TaskSamples<'b>> {
    let is_ours = at.u8().ok()? == tag::MAP && at.varint().ok()? == 3;
    if !is_ours || text(at)? != "task" {
        return None;
    }
    let task = text(at)?.into();
    let iteration = (text(at)? == "iteration").then(|| int(at))??;
    let samples = (text(at)? == "samples").then(|| int(at))??;
    Some(TaskSamples { task, iteration, samples })
}

#[cfg(test)]
mod tests {
    use keepstep_format::encode::{Encoder, NothingKnown};
    use keepstep_format::hash::ContentKey;

    use super::*;

    fn encoded(fields: &[(u8, Value)]) -> Vec<u8> {
        let key = ContentKey::new(&[7; 16]);
        let mut encoder = Encoder::fields(&key, &NothingKnown);
        for (number, value) in fields {
            encoder.field(*number);
            encoder.put(value).expect("fits");
        }
        encoder.finish().body
    }

    fn planned(keys: [&str; 3]) -> Value {
        let value = |key: &str, number: i64| match key {
            "task" => Value::from(format!("tä/{number}").repeat(200)),
            "iteration" => Value::Int(-number),
            _ => Value::Int(number << 40),
        };
        Value::list((1..4).map(|number| Value::map(keys.map(|key| (key, value(key, number))))))
    }

    /// Both ways of reading a card say the same, and bytes that are none are refused by both.
    #[test]
    fn both_ways_of_reading_agree() {
        let needs = Value::list([Value::from("score")]);
        let ours = encoded(&[
            (fields::TIME, Value::Int(-5)),
            (fields::WRITER, Value::bytes([1; 16])),
            (fields::PLANNED, planned(["task", "iteration", "samples"])),
            (fields::NEEDS, needs.clone()),
        ]);
        let fast = PlanCard::read_as_we_write(&ours).expect("reads");
        assert_eq!(Some(&fast), PlanCard::read_any(&ours).as_ref());
        assert_eq!(
            (fast.entries.len(), fast.entries[2].iteration, fast.entries[2].samples),
            (3, -3, 3 << 40)
        );
        let other =
            encoded(&[(fields::PLANNED, planned(["samples", "task", "iteration"])), (fields::NEEDS, needs)]);
        assert!(PlanCard::read_as_we_write(&other).is_none());
        assert_eq!(PlanCard::read(&other), Some(fast));
        for cut in 0..ours.len() {
            assert!(PlanCard::read(&ours[..cut]).is_none(), "cut at {cut}");
        }
        assert!(PlanCard::read(&[ours.as_slice(), &[0]].concat()).is_none());
    }

    /// A body that one way takes and the other refuses would be two truths.
    #[test]
    fn a_flipped_byte_is_read_alike() {
        let ours = encoded(&[
            (fields::TIME, Value::Int(1)),
            (fields::PLANNED, planned(["task", "iteration", "samples"])),
            (fields::NEEDS, Value::list([])),
        ]);
        for at in 0..ours.len() {
            for bit in 0..8 {
                let mut flipped = ours.clone();
                flipped[at] ^= 1 << bit;
                if let Some(fast) = PlanCard::read_as_we_write(&flipped) {
                    assert_eq!(Some(fast), PlanCard::read_any(&flipped), "byte {at}, bit {bit}");
                }
            }
        }
    }
}
