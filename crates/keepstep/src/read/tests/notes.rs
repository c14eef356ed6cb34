use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::commit::What;
use proptest::prelude::*;

use super::*;

const GENERATION_ID: Id = Id([0xbb; 16]);

fn run_bind() -> Bind {
    Bind { what: What::Run, id: GENERATION_ID, attempt: 0 }
}

fn episode(number: u8) -> Id {
    Id([number; 16])
}

/// A note in the making: who writes it, when, on what, what.
#[derive(Debug, Clone)]
struct Made {
    writer: usize,
    time: i64,
    target: NoteTarget,
    name: &'static str,
    source: &'static str,
    value: i64,
}

fn made() -> impl Strategy<Value = Made> {
    let target = (1u8..3, prop::option::of(0u32..2), prop::option::of(0u64..2));
    let target = target.prop_map(|(it, attempt, step)| NoteTarget { episode: episode(it), attempt, step });
    // Few times, so that writer and sequence have to decide.
    (0..3usize, 0..4i64, target, 0..2usize, 0..2usize, any::<i64>()).prop_map(
        |(writer, time, target, name, source, value)| {
            let (name, source) = (["reward", "label"][name], ["judge", "human"][source]);
            Made { writer, time, target, name, source, value }
        },
    )
}

fn fields_of(note: &Made) -> Vec<(u8, Value)> {
    let mut out = vec![(fields::TIME, Value::Int(note.time))];
    out.extend(note.target.step.map(|step| (fields::INDEX, Value::Int(step as i64))));
    out.push((fields::NAME, note.name.into()));
    out.push((fields::VALUE, Value::Int(note.value)));
    out.push((fields::SOURCE, note.source.into()));
    out.push((fields::TARGET, Value::bytes(note.target.episode.0)));
    out.extend(note.target.attempt.map(|it| (fields::TARGET_ATTEMPT, Value::Int(i64::from(it)))));
    out
}

/// The model: all notes, sorted by time, writer and sequence; the last of those that say the same counts.
type Model = BTreeMap<NoteKey, Vec<(i64, Id, u32, i64)>>;

fn in_the_model(model: &mut Model, note: &Made, writer: Id, seq: u32) {
    let key = NoteKey { target: note.target, name: note.name.to_owned(), source: note.source.to_owned() };
    let said = model.entry(key).or_default();
    said.push((note.time, writer, seq, note.value));
    said.sort_unstable();
}

fn as_model(notes: &Notes) -> Model {
    let value = |said: &NoteSaid| (said.time, said.writer, said.seq, said.value.as_int().unwrap());
    notes.iter().map(|(key, said)| (key.clone(), said.iter().map(value).collect())).collect()
}

proptest! {
    /// However notes come in, and however often somebody looks: the newest counts, and all of them stay, in order.
    #[test]
    fn the_newest_note_counts(notes in prop::collection::vec((made(), any::<bool>()), 1..40), live in any::<bool>()) {
        let store = TestStore::new("notes-model");
        let mut makers: Vec<LogMaker> = (0..3).map(|it| LogMaker::new(it + 1)).collect();
        for maker in &makers {
            append(maker, &store);
        }
        let liveness = if live { Liveness::Live } else { Liveness::Unknown };
        let mut index = NoteIndex::new(catalog(&store, liveness), GENERATION_ID).unwrap();
        let mut model = Model::new();
        let mut seqs = [0u32; 3];
        for (note, looks) in &notes {
            let maker = &mut makers[note.writer];
            maker.record(&run_bind(), Kind::Note, &fields_of(note));
            in_the_model(&mut model, note, maker.writer, seqs[note.writer]);
            seqs[note.writer] += 1;
            // What is not synced is not there yet to those who know that the writer lives, and there to the others.
            if live { maker.commit_synced() } else { maker.commit() };
            append(maker, &store);
            if *looks {
                index.refresh().unwrap();
                prop_assert_eq!(&as_model(index.notes()), &model);
            }
        }
        index.refresh().unwrap();
        prop_assert_eq!(&as_model(index.notes()), &model);
        prop_assert!(index.lost().is_empty());
        let afresh = NoteIndex::new(catalog(&store, liveness), GENERATION_ID).unwrap();
        prop_assert_eq!(index.notes(), afresh.notes());
        for (key, said) in &model {
            let newest = index.notes().newest(key).unwrap();
            prop_assert_eq!(newest.value.as_int(), said.last().map(|said| said.3));
            let of_episode: Vec<_> = index.notes().of(&key.target.episode).map(|(key, _)| key.clone()).collect();
            prop_assert!(of_episode.contains(key));
            prop_assert!(of_episode.iter().all(|it| it.target.episode == key.target.episode));
        }
    }
}

/// A note in a log that was given up is gone when its writer wrote something else in its place.
#[test]
fn a_note_that_was_taken_back_is_gone() {
    let store = TestStore::new("notes-void");
    let mut maker = LogMaker::new(1);
    let note = |value| Made {
        writer: 0,
        time: 5,
        target: NoteTarget::episode(episode(1)),
        name: "label",
        source: "judge",
        value,
    };
    maker.record(&run_bind(), Kind::Note, &fields_of(&note(1)));
    maker.commit_synced();
    let kept_to = maker.offset();
    maker.record(&run_bind(), Kind::Note, &fields_of(&note(2)));
    maker.commit();
    maker.save(&store);
    let mut index = NoteIndex::new(catalog(&store, Liveness::Unknown), GENERATION_ID).unwrap();
    let values = |index: &NoteIndex| -> Vec<i64> {
        as_model(index.notes()).into_values().flatten().map(|said| said.3).collect()
    };
    assert_eq!(values(&index), [1, 2]);
    maker.next_segment(Some((0, kept_to)));
    maker.rewind(&run_bind(), 1);
    maker.record(&run_bind(), Kind::Note, &fields_of(&Made { time: 4, ..note(3) }));
    maker.commit_synced();
    maker.save(&store);
    index.refresh().unwrap();
    assert_eq!(values(&index), [3, 1]);
}

/// What attempts noted on themselves, and what was noted on them later, is one; a copy counts as what it is a copy of.
#[test]
fn notes_of_attempts_and_of_the_run_are_one() {
    let store = TestStore::new("notes-merge");
    let (mut one, mut two) = (LogMaker::new(1), LogMaker::new(2));
    let own = |time: i64, step: Option<i64>, value: i64| {
        let mut out = vec![(fields::TIME, Value::Int(time))];
        out.extend(step.map(|step| (fields::INDEX, Value::Int(step))));
        out.extend([
            (fields::NAME, "label".into()),
            (fields::VALUE, Value::Int(value)),
            (fields::SOURCE, "me".into()),
        ]);
        out
    };
    let bind = attempt(7);
    one.record(&bind, Kind::Begin, &begin("t"));
    one.record(&bind, Kind::Note, &own(10, None, 1));
    one.record(&bind, Kind::Step, &step(0, "x".into()));
    one.record(&bind, Kind::Note, &own(11, Some(0), 2));
    one.commit_synced();
    one.seal();
    // The taker copied from sequence 3 on.
    let copied = Bind { what: What::Copied { from: one.writer }, ..bind };
    two.rewind(&copied, 3);
    two.record(&copied, Kind::Note, &own(11, Some(0), 2));
    let on_attempt = |time, value| Made {
        writer: 1,
        time,
        target: NoteTarget { episode: bind.id, attempt: Some(0), step: None },
        name: "label",
        source: "me",
        value,
    };
    two.record(&run_bind(), Kind::Note, &fields_of(&on_attempt(9, 3)));
    two.record(&run_bind(), Kind::Note, &fields_of(&on_attempt(12, 4)));
    two.commit_synced();
    one.save(&store);
    two.save(&store);
    let index = NoteIndex::new(catalog(&store, Liveness::Live), GENERATION_ID).unwrap();
    let (notes, lost) = index.episode(&bind.id).unwrap();
    assert!(lost.is_empty(), "{lost:?}");
    let said: Vec<(Option<u64>, Vec<i64>)> = notes
        .iter()
        .map(|(key, said)| (key.target.step, said.iter().map(|said| said.value.as_int().unwrap()).collect()))
        .collect();
    assert_eq!(said, [(None, vec![3, 1, 4]), (Some(0), vec![2])]);
    assert_eq!(index.episode(&episode(9)).unwrap().0, Notes::default());
}

/// A note that cannot be read is told with its place; the others stay.
#[test]
fn a_damaged_note_is_told() {
    let store = TestStore::new("notes-damage");
    let mut maker = LogMaker::new(1);
    let mut places = Vec::new();
    for value in 0..3 {
        let target = NoteTarget::episode(episode(value as u8));
        let note = Made { writer: 0, time: value, target, name: "label", source: "judge", value };
        places.push(maker.record(&run_bind(), Kind::Note, &fields_of(&note)));
        maker.commit_synced();
    }
    maker.save(&store);
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    let mut bytes = maker.segments()[0].1.clone();
    bytes[places[1] as usize + 30] ^= 1;
    store.write(&path, &bytes);
    let mut index = NoteIndex::new(catalog(&store, Liveness::Live), GENERATION_ID).unwrap();
    index.refresh().unwrap();
    assert_eq!(index.notes().iter().count(), 2);
    let place = RecordPlace { segment: 0, offset: places[1] };
    assert_eq!(index.lost(), [LostNotes { writer: maker.writer, seqs: (1, 2), place: Some(place) }]);
}
