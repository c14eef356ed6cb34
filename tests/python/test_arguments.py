"""Every public argument is looked at where it comes in: what is wrong is told by name, before anything is written."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keepstep
import outside
import pytest

# One of each kind that somebody may give by mistake.
WRONG: dict[str, Any] = {
    "int": 17,
    "minus": -1,
    "float": 0.5,
    "text": "1h",
    "none": None,
    "list": [1],
    "dict": {1: 2},
    "object": object(),
}

# What an argument takes, beside what it is refused for; whatever is recorded as a value takes everything.
ANYTHING = {"value", "default", "observation", "info", "fn", "args", "said", "both", "options", "error"}


def takes(name: str, given: Any) -> bool:
    """True if an argument takes what is given, so that nothing can be told of it."""
    texts = {"task", "name", "ref", "source", "id", "why", "limit", "said_by", "key", "after", "of", "policy"}
    if isinstance(given, str):
        return name in texts
    if isinstance(given, bool):
        return name in {"new", "follow"}
    if isinstance(given, int):
        numbers = {
            "sample",
            "iteration",
            "samples",
            "size",
            "max_attempts",
            "step",
            "generation",
            "least",
            "policy",
            "pause_s",
        }
        return (given >= 0 and name in numbers) or name in {"since", "min_policy", "policy"}
    if isinstance(given, float):
        return name == "since" or (given >= 0 and name == "pause_s")
    return False


def optional(method: Callable[..., Any], name: str) -> bool:
    return inspect.signature(method).parameters[name].default is None


@pytest.fixture
def things(store: keepstep.Store) -> Iterator[dict[str, tuple[Any, dict[str, Any]]]]:
    """Each public class with arguments that its methods need and that are right."""
    run = store.run("shop")
    run.plan(["planned"])
    with run.episode("t") as episode:
        episode.step(action=1)
        group = run.group("g", size=1)
        yield {
            "Store": (store, {"name": "new", "ref": "shop/t"}),
            "Run": (
                run,
                {
                    "task": "t2",
                    "size": 1,
                    "tasks": ["planned"],
                    "ref": "shop/t#0.0",
                    "name": "n",
                    "value": 1,
                    "source": "me",
                    "of": "steps",
                },
            ),
            "Group": (group, {"source": "me"}),
            "Episode": (
                episode,
                {"name": "n", "value": 1, "source": "me", "observation": 1, "why": "finished", "fn": int},
            ),
            "Stream": (run.stream("s"), {"id": "a", "value": 1}),
        }
        episode.end("finished")


CASES = [
    (class_name, method, argument, kind)
    for class_name in ("Store", "Run", "Group", "Episode", "Stream")
    for method, function in vars(getattr(keepstep, class_name)).items()
    if not method.startswith("_") and inspect.isfunction(function)
    for argument, parameter in inspect.signature(function).parameters.items()
    if argument != "self" and argument not in ANYTHING and parameter.kind is not parameter.VAR_KEYWORD
    for kind, given in WRONG.items()
    if not takes(argument, given) and not (given is None and parameter.default is None)
]


@pytest.mark.parametrize(("class_name", "method", "argument", "kind"), CASES)
def test_what_is_wrong_is_named(things: Any, class_name: str, method: str, argument: str, kind: str) -> None:
    """No "failed to extract field", no field without a name, and nothing taken in silence."""
    thing, right = things[class_name]
    call = getattr(thing, method)
    needed = [
        name
        for name, it in inspect.signature(call).parameters.items()
        if it.default is it.empty and it.kind not in (it.VAR_KEYWORD, it.VAR_POSITIONAL)
    ]
    given = {name: right[name] for name in needed if name in right} | {argument: WRONG[kind]}
    parameters = inspect.signature(call).parameters.values()
    first = [given.pop(it.name) for it in parameters if it.kind is it.POSITIONAL_ONLY]
    with pytest.raises((keepstep.BadInput, TypeError)) as raised:
        came = call(*first, **given)
        # What is made when it is entered, or asked for, is looked at then.
        if isinstance(came, keepstep.Episode):
            came.__enter__()
        next(iter(came), None)
    said = str(raised.value)
    assert argument in said, said
    assert "failed to extract" not in said and "Wanted" not in said, said


def test_the_cases_are_all_there() -> None:
    """A test over nothing would pass."""
    methods = {(it[0], it[1]) for it in CASES}
    assert ("Run", "episodes") in methods and ("Stream", "put") in methods and len(CASES) > 150


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("resume", "no"),
        ("busy", 1),
        ("at", -1),
        ("at", "x"),
        ("policy", 1.5),
        ("new_policy", 3),
        ("parent", 4),
        ("att", 1),
    ],
)
def test_options_of_an_episode_are_named(run: keepstep.Run, option: str, given: Any) -> None:
    """As they are when it is opened."""
    with pytest.raises(keepstep.BadInput, match=option):
        run.episode("t", **{option: given}).__enter__()


def test_there_is_nothing_to_inherit_in_what_is_new(run: keepstep.Run) -> None:
    """`at=5` of an episode that nobody began was taken in silence."""
    with pytest.raises(keepstep.BadInput, match=r"at is 5.*new"):
        run.episode("t", at=5).__enter__()
    with run.episode("t", at=0) as episode:
        episode.end("finished")


def test_numbers_count_from_0(run: keepstep.Run) -> None:
    """Sample -1 was recorded, and no plan or group has it."""
    for wrong in ({"sample": -1}, {"iteration": -1}, {"sample": True}, {"sample": 1.0}):
        with pytest.raises(keepstep.BadInput, match=next(iter(wrong))):
            run.episode("t", **wrong)
    with pytest.raises(keepstep.BadInput, match="size"):
        run.group("t", size=0)
    with pytest.raises(keepstep.BadInput, match="name"):
        run.store.run("")


def test_a_nan_reward_is_taken_with_a_warning_once(run: keepstep.Run) -> None:
    """NaN survives, and is nearly always a mistake."""
    with run.episode("t") as episode:
        with pytest.warns(RuntimeWarning, match="reward is NaN") as warned:
            episode.step(action=1, reward=float("nan"))
            episode.step(action=1, reward=float("nan"))
            episode.step(action=1, reward=float("inf"))
        assert len(warned) == 1
        with pytest.warns(RuntimeWarning, match="fmt"):
            episode.step(action=1, reward_terms={"fmt": float("nan")})
        episode.end("finished")
    assert repr(run.store.find("shop/t").steps[0].reward) == "nan"


@pytest.mark.parametrize("wrong", [float("nan"), "0.1"])
def test_advice_about_a_number_can_be_followed(store: keepstep.Store, wrong: Any) -> None:
    """The warning about NaN in a reward term advised None, which is refused there; so did the error about a text."""
    nan = wrong != wrong

    def told(give: Callable[[], Any]) -> str:
        if nan:
            with pytest.warns(RuntimeWarning, match="is NaN") as warned:
                give()
            return str(warned[0].message)
        with pytest.raises(keepstep.BadInput) as raised:
            give()
        return str(raised.value)

    run = store.run("shop")
    with run.episode("t") as episode:
        assert "None" in told(lambda: episode.step(action=1, reward=wrong))
        episode.step(action=1, reward=None)
        said = told(lambda: episode.step(action=1, reward_terms={"goal": wrong, "format": 0.1}))
        assert "None" not in said and "leave out" in said
        episode.step(action=1, reward_terms={"format": 0.1})
        with pytest.raises(keepstep.BadInput, match="leave out"):
            episode.step(action=1, reward_terms={"goal": None})
        episode.end("finished")
    # Each context warns once for a field.
    with keepstep.open(str(store.where)) as again:
        run = again.run("shop")
        if nan:
            assert "None" in told(lambda: run.annotate("shop/t#0.0", "score", wrong, source="me"))
            run.annotate("shop/t#0.0", "score", None, source="me").wait()
        group = run.group("t", size=1)
        assert "None" not in told(lambda: group.seal({group.refs[0]: wrong}, source="me"))


def test_followers_wait_for_nothing_that_never_comes(run: keepstep.Run) -> None:
    """`episodes(follow=True, ends=["crashed"])` waited for ever: crashed is found, and said by nobody."""
    for ends in (["crashed"], ["superseded", "finished"]):
        for coming in ({"follow": True}, {"after": ""}):
            with pytest.raises(keepstep.BadInput, match=f"ends.*{ends[0]}"):
                run.episodes(ends=ends, **coming)  # type: ignore[arg-type]
        assert not list(run.episodes(ends=ends))  # type: ignore[arg-type]
    assert not list(run.episodes(ends=["finished", "errored"], after=""))


NOT_ALLOWED = """
    import os, pathlib, sys, keepstep
    os.chmod(sys.argv[1], 0o777)
    if os.geteuid() == 0:
        os.setuid(65534)  # root may read everything
    where = pathlib.Path(sys.argv[1]) / "runs"
    with keepstep.open(where) as store:
        run = store.run("shop")
        with run.episode("t") as episode:
            episode.step(action=1)
            episode.end("finished")
        (claim,) = where.rglob("*.claim")
        claim.chmod(0)
        for read in (lambda: run.episode("t").__enter__(), lambda: run.annotate("shop/t#0.0", "a", 1, source="me")):
            try:
                read()
            except keepstep.NotAllowed as raised:
                assert isinstance(raised, PermissionError)
                print("not allowed:", raised)
"""


def test_what_the_system_does_not_allow_is_called_so() -> None:
    """Permission denied was `Poisoned`, which says that opening again helps."""
    with tempfile.TemporaryDirectory() as place:
        said = outside.run(NOT_ALLOWED, place).splitlines()
    assert len(said) == 2 and all("claims/" in line and "ermission" in line for line in said), said


def test_fenced_names_the_episode(store: keepstep.Store, run: keepstep.Run) -> None:
    """It named an id, which nobody knows by heart."""
    with keepstep.open(str(store.where)) as other:
        episode = run.episode("t").__enter__()
        episode.step(action=1)
        with other.run("shop").episode("t", busy="take") as taker:
            with pytest.raises(keepstep.Fenced, match=r"shop/t#0\.0"):
                episode.step(action=2)
            taker.end("finished")


def test_all_ways_say_that_it_was_pruned(store: keepstep.Store, run: keepstep.Run) -> None:
    """Some said "no episode here is called", one gave microseconds since 1970."""
    with run.episode("t") as episode:
        episode.step(action=1)
        episode.end("finished")
    where = str(store.where)
    outside.command("prune", "-s", where, "shop/t", "--reason", "holds a secret")
    names = ["shop/t", "shop/t#0", "shop/t#0.0", episode.id, episode.id[:8]]

    def is_told(said: str) -> None:
        assert "pruned on 2" in said and "UTC" in said and "holds a secret" in said, said

    for name in names:
        with pytest.raises(keepstep.NotFound) as raised:
            store.find(name)
        is_told(str(raised.value))
        for verb in (
            ["show", "-s", where],
            ["export", "jsonl", "-s", where],
            ["ls", "-s", where],
            ["tail", "-s", where],
        ):
            is_told(outside.complaint(*verb, name))
    with pytest.raises(keepstep.NotFound) as raised:
        run.episode("t").__enter__()
    is_told(str(raised.value))
    assert "shop/t#0.0" in str(raised.value)
    assert "--reason" in outside.complaint("prune", "-s", where, "--run", "shop", "--reason", "", code=2)


def test_runs_that_are_not_there_are_told_alike(store: keepstep.Store, run: keepstep.Run) -> None:
    """`ls --run nope` listed nothing and was content; `ls nope` failed."""
    with run.episode("t") as episode:
        episode.end("finished")
    where = str(store.where)
    for args in (["nope"], ["--run", "nope"]):
        assert "nope" in outside.complaint("ls", where, *args)
    assert "perhaps shop" in outside.complaint("ls", where, "--run", "shopp")
    assert "--all" in outside.complaint("export", "jsonl", "-s", where, "--task", "t", code=2)
    for more in ([], ["--all"]):
        lines = outside.command("export", "jsonl", "-s", where, "--run", "shop", *more, "--notes")
        assert [json.loads(line) for line in lines.splitlines()] == []
