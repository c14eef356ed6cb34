"""Whoever asks for a recorded result gets the same type when the call was made just now, and when it was made before a crash."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import functools
import math
import pathlib
import warnings
from typing import Any, Literal, NamedTuple, Optional, TypedDict

import keepstep
import outside
import pydantic
import pytest


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Place(NamedTuple):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Reply:
    text: str
    colour: Colour = Colour.RED
    places: list[Place] = dataclasses.field(default_factory=list)
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length = len(self.text)


class Tool(pydantic.BaseModel):
    type: Literal["tool"] = "tool"
    name: str
    more: Tool | None = None


class Text(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    type: Literal["text"] = "text"
    text: str
    note: str | None = None


class Answer(pydantic.BaseModel):
    id: str = pydantic.Field(alias="answerId")
    content: list[Tool | Text]
    reply: Reply | None = None


class Node(TypedDict):
    """It contains itself, and nothing that has to be made."""

    name: str
    below: list[Node]


class Found(TypedDict):
    reply: Reply
    more: Found | None


@dataclasses.dataclass
class Tree:
    colour: Colour
    below: dict[str, Tree] = dataclasses.field(default_factory=dict)


class Odd:
    """Only a repr can be recorded of it."""


REPLY = Reply("hi", Colour.BLUE, [Place(1, 2.5)])
ANSWER = Answer(
    answerId="a-1",
    content=[Text(text="x", extra_field=[1]), Tool(name="buy", more=Tool(name="pay"))],
    reply=REPLY,
)


def twice(run: keepstep.Run, task: str, fn: Any, /, *args: Any, **given: Any) -> tuple[Any, Any]:
    """What a call gives when it is made, and what a resumed attempt is given."""
    made = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        return fn(*args, **kwargs)

    if hasattr(fn, "__annotations__"):
        counted = functools.wraps(fn)(counted)
    with pytest.warns(RuntimeWarning, match="without end"):
        with run.episode(task) as episode:
            live = episode.call("llm", counted, *args, **given)
    with run.episode(task) as episode:
        again = episode.call("llm", counted, *args, **given)
        episode.end("finished")
    assert len(made) == 1
    return live, again


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


NAMED = {
    "model": (ANSWER, Answer),
    "dataclass": (REPLY, Reply),
    "named tuple": (Place(3), Place),
    "enum": (Colour.BLUE, Colour),
    "list": ([REPLY, REPLY], list[Reply]),
    "dict": ({"a": Place(1), "b": Place(2)}, dict[str, Place]),
    "tuple": ((Colour.RED, REPLY), tuple[Colour, Reply]),
    "set": ({Colour.RED, Colour.BLUE}, set[Colour]),
    "none": (None, Reply | None),
    "union": (Colour.RED, Reply | Colour | None),
    "optional": (REPLY, Optional[Reply]),  # noqa: UP045
    "typed dictionary": ({"name": "a", "below": [{"name": "b", "below": []}]}, Node),
    "typed dictionary of a class": ({"reply": REPLY, "more": {"reply": REPLY, "more": None}}, Found),
    "tree": (Tree(Colour.RED, {"a": Tree(Colour.BLUE)}), Tree),
    "text": ("hello", str),
    "number": (3, float),
    "path": (pathlib.PurePosixPath("/a"), pathlib.PurePosixPath),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_class_that_is_named_comes_back_both_times(run: keepstep.Run, name: str) -> None:
    """By `returns=`."""
    value, returns = NAMED[name]
    live, again = twice(run, "t", lambda: value, returns=returns)
    assert same(live, value) and same(again, value)


def test_the_annotation_of_the_function_names_it_too(run: keepstep.Run) -> None:
    """Of a function, a method, a partial, something that is called; also as a text, and inside of an awaitable."""

    class Client:
        def ask(self, text: str) -> Reply:
            return Reply(text)

        def __call__(self) -> list[Reply]:
            return [REPLY]

        async def later(self) -> Reply | None:
            return REPLY

    client = Client()
    assert twice(run, "method", client.ask, "a") == (Reply("a"), Reply("a"))
    for fn, value in ((functools.partial(client.ask, "p"), Reply("p")), (client, [REPLY]), (lambda: 3, 3)):
        with run.episode(f"{value}") as episode:
            assert episode.call("llm", fn) == value
            episode.end("finished")
    with run.episode("class") as episode:
        assert episode.call("llm", Reply, "made") == Reply("made")
        episode.end("finished")

    async def main() -> None:
        async with run.episode("async") as episode:
            assert await episode.call("llm", client.later) == REPLY
            await episode.end("finished")

    asyncio.run(main())


PLAIN = {
    "model": (
        ANSWER.content[1],
        {"type": "tool", "name": "buy", "more": {"type": "tool", "name": "pay", "more": None}},
    ),
    "dataclass": (Reply("hi"), {"text": "hi", "colour": 1, "places": [], "length": 2}),
    "named tuple": (Place(3), {"x": 3, "y": 0.0}),
    "enum": (Colour.BLUE, "b"),
    "tuple": ((1, Colour.RED), (1, 1)),
    "defaultdict": (collections.defaultdict(int, a=1), {"a": 1}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_without_a_name_it_is_plain_data_both_times(run: keepstep.Run, name: str) -> None:
    """Not the object first and a dictionary after a crash."""
    value, plain = PLAIN[name]
    live, again = twice(run, "t", lambda: value)
    assert same(live, plain) and same(again, plain)


def test_what_was_registered_comes_back_by_itself(run: keepstep.Run) -> None:
    """No name is needed: this process said how the class comes back."""

    class Money:
        def __init__(self, cents: int) -> None:
            self.cents = cents

    keepstep.register(Money, encode=lambda it: it.cents, decode=Money)
    for returns in (None, Money, list[Money] | Money):
        live, again = twice(run, f"{returns}", lambda: Money(5), returns=returns)
        assert type(live) is type(again) is Money and live.cents == again.cents == 5


@dataclasses.dataclass
class Untrue:
    """Its constructor makes something else of the data."""

    text: str

    def __post_init__(self) -> None:
        self.text += "!"


REFUSED = {
    "repr": (
        lambda: {"choices": [{"message": Odd()}]},
        None,
        r"call 'llm': result.choices\[0\].message is an object",
    ),
    "other class": (lambda: Place(1), Reply, r"call 'llm': result .*Reply"),
    "not a class": (lambda: "text", Reply, r"call 'llm': result is the str 'text'"),
    "changed": (
        lambda: [Untrue("a")],
        list[Untrue],
        r"call 'llm': result\[0\].text would come back as something else",
    ),
    "no member": (lambda: 7, Colour, "no value of Colour"),
    "wrong builtin": (lambda: 7, str, "not str"),
    "inside": (
        lambda: Box(Place(1)),
        "Box",
        r"result.content was an object of .*Place, and would come back as plain data",
    ),
}


@dataclasses.dataclass
class Box:
    content: Any


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_not_come_back_is_refused_when_it_is_recorded(run: keepstep.Run, name: str) -> None:
    """Not after a crash. The path is named, the failed call is on record, and the call can be made again."""
    fn, returns, message = REFUSED[name]
    returns = Box if returns == "Box" else returns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run.episode("t") as episode:
            with pytest.raises(keepstep.BadInput, match=message.replace("'", "[\"']")):
                episode.call("llm", fn, returns=returns)
            assert episode.call("llm", lambda: "fine") == "fine"
            episode.end("finished")
    calls = outside.events(run.store.where, episode.ref, "call")
    assert [("error" in call, call.get("result")) for call in calls] == [(True, None), (False, "fine")]


def test_a_class_that_nobody_can_make_is_refused_before_the_call(run: keepstep.Run) -> None:
    """Nothing is asked, and paid for, whose answer could not be given again."""
    with run.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match=r"returns is .*Odd.*register"):
            episode.call("llm", pytest.fail, returns=Odd)
        episode.end("finished")


def test_keyword_arguments_are_given_recorded_and_compared(run: keepstep.Run) -> None:
    """`key` and `returns` are ours, all others are the function's, `name` and `fn` too."""

    def ask(text: str, *, temperature: float, name: str = "", fn: str = "") -> str:
        return f"{text} {temperature} {name} {fn}"

    given = {"temperature": 0.5, "name": "n", "fn": "f"}
    assert twice(run, "t", ask, "a", **given) == ("a 0.5 n f",) * 2
    with pytest.warns(RuntimeWarning):
        with run.episode("u") as episode:
            episode.call("llm", ask, "a", temperature=0.5)
    with pytest.raises(keepstep.Diverged, match=r"arguments\.kwargs\.temperature.*0\.5.*0\.75"):
        with run.episode("u") as episode:
            episode.call("llm", ask, "a", temperature=0.75)


def test_an_argument_may_be_what_it_came_back_as(run: keepstep.Run) -> None:
    """The state of a resumed loop is plain data: asking the same with it is the same question, in calls and in turns."""
    question = [REPLY, Colour.BLUE, ANSWER.content[0]]
    with pytest.warns(RuntimeWarning):
        with run.episode("t") as episode:
            episode.step(action="look", state={"messages": question})
            episode.call("llm", lambda *_, **__: "fine", question, why=REPLY)
            episode.turn(prompt=question, action=Colour.RED).__enter__()
    with run.episode("t") as episode:
        messages = episode.state("messages")
        assert messages != question
        assert episode.call("llm", pytest.fail, messages, why=messages[0]) == "fine"
        with pytest.raises(keepstep.Diverged, match=r"prompt\[0\]\.text"):
            episode.turn(prompt=[{**messages[0], "text": "ho"}, *messages[1:]], action=1).__enter__()
        with episode.turn(prompt=messages, action=1) as turn:
            assert turn.adopted
            turn.result(observation="o")
        episode.end("finished")


def test_what_was_said_is_plain_data_both_times(run: keepstep.Run) -> None:
    """`turn.said` is what the record gives, also if it was said just now."""
    said = {"action": Place(1), "response": REPLY, "tokens": keepstep.Tokens(ids=[1, 2]), "agent": "a"}
    with pytest.warns(RuntimeWarning):
        with run.episode("t") as episode:
            turn = episode.turn(**said)
            turn.__enter__()
            live = turn.said
    with run.episode("t") as episode:
        assert episode.pending is not None and episode.pending.said == live
        with episode.turn(**said) as turn:
            assert turn.adopted and turn.said == live
            turn.result(observation="o")
        episode.end("finished")
    assert live["action"] == {"x": 1, "y": 0.0} and live["tokens"] == keepstep.Tokens(ids=[1, 2])
    with keepstep.open(None).run("r").episode("t") as null:
        with null.turn(**said) as turn:
            assert turn.said == live
            turn.result()
        null.end("finished")


async def ask(text: str, times: int = 1) -> Reply:
    await asyncio.sleep(0)
    return Reply(text * times)


class Asking:
    async def __call__(self, text: str) -> Reply:
        return await ask(text)

    def method(self, text: str) -> Any:
        return ask(text)


AWAITABLE = {
    "async def": (ask, ("a",)),
    "lambda": (lambda text: ask(text), ("a",)),
    "partial": (functools.partial(ask, times=2), ("a",)),
    "partial of a lambda": (functools.partial(lambda text: ask(text), "a"), ()),
    "bound method": (Asking().method, ("a",)),
    "callable": (Asking(), ("a",)),
    "future": (lambda: asyncio.ensure_future(ask("f")), ()),
}


@pytest.mark.parametrize("name", AWAITABLE)
def test_whatever_gives_an_awaitable_does_so_both_times(run: keepstep.Run, name: str) -> None:
    """A resumed attempt does not call it, and gives something to await all the same."""
    fn, args = AWAITABLE[name]
    came = []

    async def main(ends: bool) -> None:
        async with run.episode("t") as episode:
            both = [
                episode.call("llm", fn, *args, returns=Reply),
                episode.call("llm", fn, *args, returns=Reply),
            ]
            assert all(asyncio.iscoroutine(it) for it in both)
            came.append(await asyncio.gather(*both))
            if ends:
                await episode.end("finished")

    with pytest.warns(RuntimeWarning, match="without end"):
        asyncio.run(main(False))
    fn_was = fn
    asyncio.run(main(True))
    assert fn is fn_was and came[0] == came[1] and all(type(it) is Reply for it in came[1])
    assert len(outside.events(run.store.where, "shop/t#0.0", "call")) == 2


KILLED = """
import asyncio, os, pathlib, signal, sys
import keepstep, test_same_type as it

store, effects, how = sys.argv[1:]

def effect(text):
    with open(effects, "a") as file:
        file.write(text + "\\n")

def ask(text):
    effect("ask")
    return it.ANSWER

async def later(text):
    return ask(text)

def go(episode, came):
    assert came == it.ANSWER and type(came.content[1].more) is it.Tool, came
    if episode.attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    episode.end("finished").wait()

async def main(run):
    async with run.episode("t") as episode:
        go(episode, await episode.call("llm", lambda text: later(text), "q", returns=it.Answer))

run = keepstep.open(store).run("shop")
if how == "async":
    asyncio.run(main(run))
else:
    with run.episode("t") as episode:
        go(episode, episode.call("llm", ask, text="q", returns=it.Answer))
"""


@pytest.mark.parametrize("how", ["with", "async"])
def test_after_kill_9_another_process_is_given_the_same_class(tmp_path: pathlib.Path, how: str) -> None:
    """The same program runs twice; the second time nothing is asked."""
    given = (tmp_path / "runs", tmp_path / "effects", how)
    outside.run(KILLED, *given, code=outside.KILLED)
    outside.run(KILLED, *given)
    assert (tmp_path / "effects").read_text() == "ask\n"


def test_the_null_store_gives_the_same(run: keepstep.Run) -> None:
    """A program that was tried without a store sees nothing new with one."""
    with keepstep.open(None).run("r").episode("t") as null, run.episode("t") as episode:
        for name, (value, returns) in NAMED.items():
            for named in (returns, None):
                live = episode.call(name, lambda value=value: value, returns=named)
                assert same(null.call(name, lambda value=value: value, returns=named), live)
        with pytest.raises(keepstep.BadInput, match="result"):
            null.call("odd", Odd)
        null.end("finished")
        episode.end("finished")


def test_what_is_redacted_is_redacted_both_times(tmp_path: pathlib.Path) -> None:
    """What a resumed attempt cannot be given, the first one does not build on either."""
    with keepstep.open(tmp_path / "runs", redact=["secret"]) as store:
        live, again = twice(store.run("r"), "t", lambda: {"secret": "s", "text": "t"})
    assert live == again == {"secret": "[redacted]", "text": "t"}


def test_numbers_that_are_not_equal_to_themselves_are_the_same(run: keepstep.Run) -> None:
    """NaN comes back inside of a class."""
    live, again = twice(run, "t", lambda: Place(1, math.nan), returns=Place)
    assert type(live) is type(again) is Place and math.isnan(live.y) and math.isnan(again.y)
