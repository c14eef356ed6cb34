"""Tables: what other programs read is what was recorded, number by number, a batch at a time."""

import json
import math
import struct

import keepstep
import pytest

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def store(tmp_path):
    # Where something may be hidden, what stands for it is taken as it is: a text among the tokens.
    with keepstep.open(tmp_path / "runs", redact=["secret"]) as store:
        yield store


@pytest.fixture
def run(store):
    """A run with an episode that went on, one that failed, one that runs, and notes."""
    run = store.run("r", config={"model": "m"})
    with run.episode("a") as episode:
        episode.first({"page": "<b>"}, info={"seed": 1})
        episode.step(
            action=["click", 3],
            observation="Käse",
            prompt=[{"role": "user"}],
            response="yes",
            reward=math.nan,
            reward_terms={"format": 0.1, "goal": math.inf},
            discount=0.5,
            policy=7,
            agent="buyer",
            state={"m": [1]},
            tokens=keepstep.Tokens(
                prompt=[1, 2**40], ids=[3], logprobs=[-0.1], mask=[True, 0.5, 1], arrays={"x": [1]}
            ),
        )
        episode.note("mood", "good", source="loop", step=1)
        episode.end("aborted")
    with run.episode("a") as episode:
        episode.step(
            action=None, observation=b"\x00\xff", reward=None, policy="v8", tokens=keepstep.Tokens(ids=["t"])
        )
        episode.end("truncated", limit="turns")
    run.annotate("r/a#0.0", "score", 0.1, source="judge").wait()
    run.annotate("r/a#0.0", "score", {"v": 0.2}, source="judge").wait()
    with pytest.raises(KeyError), run.episode("b", iteration=2, sample=1, parent="r/a#0.0~1"):
        raise KeyError("lost")
    with run.episode("c") as episode:
        episode.step(action="a", observation="o", reward=0.1)
        episode.step(action="a", observation="o", reward=0.2)
        store.find("r/c")
        yield run
        episode.end("finished")


def rows(run, of, columns=None):
    return pyarrow.table(run.table(of, columns)).to_pylist()


def test_a_row_for_each_episode_says_what_its_view_says(run):
    found = rows(run, "episodes")
    views = list(run.episodes())
    assert (
        [row["ref"] for row in found]
        == [view.ref for view in views]
        == ["r/a#0.0~1", "r/b#2.1~0", "r/c#0.0~0"]
    )
    for row, view in zip(found, views, strict=True):
        names = ("ref", "id", "run", "task", "iteration", "sample", "attempt", "state", "parent")
        assert {name: row[name] for name in names} == {name: getattr(view, name) for name in names}
        ending = view.ending or keepstep.Ending(None, said_by=None)
        assert (row["why"], row["limit"], row["error"], row["said_by"]) == tuple(ending)
        assert row["steps"] == len(view.steps) and row["policies"] == [str(it) for it in view.policies]
        assert row["first_time"].timestamp() == pytest.approx(view.first_time, abs=1e-6)
        assert row["last_time"].timestamp() == pytest.approx(view.last_time, abs=1e-6)
    assert math.isnan(found[0]["reward"]) and found[1]["reward"] is None
    assert struct.pack("d", found[2]["reward"]) == struct.pack("d", 0.1 + 0.2)
    assert (found[0]["why"], found[0]["limit"], found[0]["policies"]) == ("truncated", "turns", ["7", "v8"])
    assert found[1]["error"].startswith("KeyError: 'lost'") and found[2]["state"] == "running"


def test_a_row_for_each_step_has_values_as_json_and_numbers_as_numbers(run):
    found = rows(run, "steps")
    assert [(row["ref"], row["index"], row["kind"]) for row in found] == [
        ("r/a#0.0~1", 0, "FIRST"),
        ("r/a#0.0~1", 1, "MID"),
        ("r/a#0.0~1", 2, "LAST"),
        ("r/c#0.0~0", 0, "MID"),
        ("r/c#0.0~0", 1, "MID"),
    ]
    first, step, last, *_ = found
    assert json.loads(first["observation"]) == {"page": "<b>"} and json.loads(first["info"]) == {"seed": 1}
    assert [json.loads(step[it]) for it in ("action", "prompt", "response", "observation", "state")] == [
        ["click", 3], [{"role": "user"}], "yes", "Käse", {"m": [1]},
    ]  # fmt: skip
    assert math.isnan(step["reward"]) and step["discount"] == 0.5
    assert dict(step["reward_terms"]) == {"format": 0.1, "goal": math.inf}
    assert (step["policy"], step["policy_number"], step["agent"]) == ("7", 7, "buyer")
    assert (last["policy"], last["policy_number"]) == ("v8", None)
    # None that was recorded is JSON's null; what was not recorded is no value at all.
    assert (last["action"], first["action"]) == ("null", None)
    assert (last["reward"], first["reward"], last["reward_terms"]) == (None, None, None)
    assert json.loads(last["observation"]) == {"$bytes": "AP8="}


def test_tokens_are_lists_of_numbers_and_what_is_no_list_is_kept_beside(run):
    first, second = rows(run, "tokens")
    assert (first["index"], first["prompt"], first["ids"], first["logprobs"]) == (1, [1, 2**40], [3], [-0.1])
    assert (first["mask"], json.loads(first["arrays"])) == ([1.0, 0.5, 1.0], {"x": [1]})
    assert (second["prompt"], second["ids"], json.loads(second["arrays"])) == (None, None, {"ids": ["t"]})


def test_every_note_is_there_and_the_newest_counts(run):
    found = rows(run, "notes")
    said = [
        (it["ref"], it["attempt"], it["step"], it["name"], json.loads(it["value"]), it["counts"])
        for it in found
    ]
    assert said == [
        ("r/a#0.0~1", None, None, "score", 0.1, False),
        ("r/a#0.0~1", None, None, "score", {"v": 0.2}, True),
        ("r/a#0.0~0", 0, 1, "mood", "good", True),
    ]
    assert {it["source"] for it in found} == {"judge", "loop"} and {it["task"] for it in found} == {"a"}


@pytest.mark.parametrize("of", ["episodes", "steps", "tokens", "notes"])
def test_only_the_columns_that_were_asked_for(run, of):
    whole = pyarrow.table(run.table(of))
    assert tuple(whole.column_names) == run.table(of).columns
    for name in whole.column_names:
        alone = pyarrow.table(run.table(of, [name]))
        # By repr, since NaN is not equal to itself.
        assert alone.column_names == [name] and repr(alone.to_pylist()) == repr(
            whole.select([name]).to_pylist()
        )
    backwards = list(reversed(whole.column_names))
    assert pyarrow.table(run.table(of, backwards)).schema == whole.select(backwards).schema


@pytest.mark.parametrize(
    ("of", "columns", "said"),
    [
        ("turns", None, '"episodes", "steps"'),
        ("steps", ["reward", "rewards"], "give some of ref, task"),
        ("steps", ["reward", "reward"], "twice"),
        ("steps", [], "is empty"),
        ("steps", "reward", "give a collection"),
    ],
)
def test_what_no_table_has_is_refused(run, of, columns, said):
    with pytest.raises(keepstep.BadInput, match=said):
        run.table(of, columns)


def test_the_schema_is_there_before_anything_is_read(run):
    for of in ("episodes", "steps", "tokens", "notes"):
        assert pyarrow.schema(run.table(of)) == pyarrow.table(run.table(of)).schema
    steps = pyarrow.schema(run.table("steps"))
    assert steps.field("time").type == pyarrow.timestamp("us", tz="UTC")
    assert steps.field("reward").type == pyarrow.float64()
    assert steps.field("reward_terms").type == pyarrow.map_(pyarrow.string(), pyarrow.float64())
    assert pyarrow.schema(run.table("tokens")).field("ids").type == pyarrow.list_(pyarrow.int64())


def test_a_table_is_read_anew_each_time(run):
    table = run.table("episodes", ["ref"])
    before = len(pyarrow.table(table))
    with run.episode("new") as episode:
        episode.step(action="a", observation="o")
        episode.end("finished")
    assert len(pyarrow.table(table)) == before + 1


def test_pandas_polars_and_duckdb_read_the_same(run):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    steps = run.table("steps")
    wanted = [(row["ref"], row["index"], repr(row["reward"])) for row in rows(run, "steps")]
    frame = steps.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["ref"]) == [ref for ref, _, _ in wanted]
    read = polars.DataFrame(steps).select("ref", "index", "reward").rows()
    assert [(ref, index, repr(reward)) for ref, index, reward in read] == wanted
    read = duckdb.sql("select ref, index, reward from steps").fetchall()
    assert [(ref, index, repr(reward)) for ref, index, reward in read] == wanted
    [[terms]] = duckdb.sql("select reward_terms['format'] from steps where agent = 'buyer'").fetchall()
    assert terms == 0.1
    tokens = run.table("tokens")
    assert polars.DataFrame(tokens)["ids"].to_list() == [[3], None]


def test_batches_are_bounded_however_much_there_is(store):
    """30 MB of steps come in batches of some 8; a thousand small ones in one."""
    run = store.run("large")
    with run.episode("t") as episode:
        for at in range(30):
            episode.submit(action=at, observation=str(at) * (1 << 20 if at < 10 else 1 << 19))
        episode.end("finished")
    reader = pyarrow.RecordBatchReader.from_stream(run.table("steps"))
    batches = [(batch.num_rows, batch.nbytes) for batch in reader]
    assert sum(count for count, _ in batches) == 30 and len(batches) >= 3
    # One row more than fits may be in a batch.
    assert max(size for _, size in batches) < (8 << 20) + (2 << 20), batches
    first = next(iter(pyarrow.RecordBatchReader.from_stream(run.table("steps", ["index"]))))
    assert first.num_rows == 30


def test_many_rows_come_in_several_batches_in_order(store):
    run = store.run("many")
    for task in range(3):
        with run.episode(f"t{task}") as episode:
            for at in range(2000):
                receipt = episode.submit(action=at, observation=None)
            receipt.wait()
            episode.end("finished")
    batches = list(pyarrow.RecordBatchReader.from_stream(run.table("steps", ["task", "index"])))
    assert [batch.num_rows for batch in batches] == [4096, 1904]
    read = [(row["task"], row["index"]) for batch in batches for row in batch.to_pylist()]
    assert read == [(f"t{task}", at) for task in range(3) for at in range(2000)]


def test_a_stream_that_nobody_reads_to_its_end_is_let_go(run):
    for _ in range(100):
        run.table("steps").__arrow_c_stream__()
    reader = pyarrow.RecordBatchReader.from_stream(run.table("steps"))
    reader.close()


def test_a_damaged_field_is_named_beside_the_others(tmp_path):
    import os
    import subprocess
    import sys

    where, marks = tmp_path / "runs", [os.urandom(40).hex() for _ in range(2)]
    code = """
import sys, warnings
warnings.simplefilter("ignore")
import keepstep
with keepstep.open(sys.argv[1]) as store, store.run("r").episode("t") as episode:
    for mark in sys.argv[2:]:
        episode.step(action="a", observation=mark)
    episode.end("finished")
"""
    subprocess.run([sys.executable, "-c", code, str(where), *marks], check=True)
    [segment] = where.glob("writers/*/*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(marks[0].encode())] ^= 1
    segment.write_bytes(data)
    with keepstep.open(where) as store:
        found = rows(store.run("r"), "steps", ["observation", "damaged"])
    assert found[0]["observation"] is None and "observation" in found[0]["damaged"]
    assert found[1] == {"observation": json.dumps(marks[1]), "damaged": []}


def test_the_null_store_gives_empty_tables():
    run = keepstep.open(None).run("r")
    for of in ("episodes", "steps", "tokens", "notes"):
        table = pyarrow.table(run.table(of))
        assert len(table) == 0 and len(table.column_names) > 10
