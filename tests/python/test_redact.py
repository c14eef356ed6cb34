"""What is to be hidden is hidden before anything is stored."""

from __future__ import annotations

import dataclasses
import datetime
import typing

import keepstep
import keepstep._core as core
import outside
import pytest
from coming_back import roundtrip
from keepstep import _values
from keepstep.errors import BadInput


class Text(str):
    pass


class Pair(typing.NamedTuple):
    left: int
    right: object


@dataclasses.dataclass
class Message:
    role: str
    content: object = None


def test_names_are_hidden_at_any_depth():
    value = [{"api_key": "s3cret", "x": {"api_key": ["s3cret"]}}, Pair(1, {Text("api_key"): "s3cret"})]
    assert "s3cret" not in repr(roundtrip(value, redact=["api_key"]))
    assert roundtrip(Message("s3cret", 1), redact=["role"]) == {"role": "[redacted]", "content": 1}
    assert roundtrip("s3cret", "state.token", redact=["token"]) == "[redacted]"
    assert roundtrip({datetime.date.min: 1, "token": "s3cret"}, redact=("token",))["token"] == "[redacted]"
    assert roundtrip({"token": 1}, redact=[]) == {"token": 1}


def test_names_are_hidden_under_keys_that_are_no_texts():
    """A header dictionary of bytes went into the store as it was."""
    value = {b"token": "s3cret", ("auth", "token"): "s3cret", ("auth", b"token"): "s3cret", 1: "shown"}
    back = roundtrip(value, redact=["token"])
    assert "s3cret" not in repr(back) and back[1] == "shown"
    assert roundtrip("s3cret", "tokens.arrays.token", redact=["token"]) == "[redacted]"


def test_every_text_of_a_run_is_hidden(tmp_path):
    """Links, reasons, sources, agents: whatever way a text goes into the store, `redact` sees it."""

    def record(store):
        run = store.run("r", links={"token": "s3cret", "wandb": "url?token=s3cret"})
        with run.episode("t") as episode:
            episode.note("score", 1.0, source="token=s3cret")
            episode.step(action={b"token": "s3cret"}, agent="token: s3cret")
            episode.turn(action="token").__enter__()
        with run.episode("t") as episode:
            episode.pending.discard("token=s3cret")
            episode.end("truncated", limit="token=s3cret")
        run.annotate("r/t", "score", 2.0, source="token=s3cret").wait()
        return dict(run.links)

    hide = lambda path, value: value.replace("s3cret", "***") if isinstance(value, str) else value  # noqa: E731
    for name, redact in {"names": ["token"], "function": hide}.items():
        with pytest.warns(RuntimeWarning), keepstep.open(tmp_path / name, redact=redact) as store:
            links = record(store)
        assert "s3cret" not in repr(links) and set(links) == {"token", "wandb"}
        assert "s3cret" not in outside.command("dump", tmp_path / name)
        small = [file for file in (tmp_path / name).rglob("*") if file.is_file() and file.suffix != ".seg"]
        assert not [file for file in small if b"s3cret" in file.read_bytes()]


def test_names_are_hidden_in_tracebacks_and_marked_texts():
    trace = 'File "a.py"\n  login(token="s3cr3t", user="u")\n  {\'token\': \'s3cr3t\'} token = s3cr3t\n mytoken=7 token == 3'
    error = {"type": "E", "message": "token: s3cr3t", "traceback": trace}
    back = roundtrip(error, "error", redact=["token"])
    assert "s3cr3t" not in repr(back)
    assert (
        'user="u"' in back["traceback"]
        and "mytoken=7" in back["traceback"]
        and "token == 3" in back["traceback"]
    )

    class Client:
        def __repr__(self):
            return "Client(token='s3cr3t', url='u')"

    with pytest.warns(_values.RecordedAsRepr):
        assert roundtrip(Client(), redact=["token"]) == "Client(token=[redacted], url='u')"


def test_a_function_sees_every_value_before_it_is_walked():
    seen = []

    def redact(path, value):
        seen.append(path)
        return value.replace("s3cret", "***") if isinstance(value, str) else value

    value = {"a": ["s3cret 1", {"b c": "s3cret"}], "m": Message("s3cret", ("s3cret",))}
    back = roundtrip(value, "info", redact=redact)
    assert "s3cret" not in repr(back)
    assert {"info", "info.a", "info.a[0]", 'info.a[1]["b c"]', "info.m.role", "info.m.content[0]"} <= set(
        seen
    )


def test_what_a_function_sees_as_text_is_hidden_in_marked_texts():
    class Client:
        def __repr__(self):
            return "Client s3cret"

    hide = lambda path, value: value.replace("s3cret", "***") if isinstance(value, str) else value  # noqa: E731
    with pytest.warns(_values.RecordedAsRepr):
        assert roundtrip(Client(), redact=hide) == "Client ***"


def test_a_function_that_raises_does_not_tell_the_value():
    def redact(path, value):
        raise KeyError(value)

    with pytest.raises(BadInput, match=r"info could not be redacted: the function raised KeyError") as caught:
        roundtrip("s3cret", "info", redact=redact)
    assert (
        "s3cret" not in str(caught.value)
        and caught.value.__context__ is None
        and caught.value.__cause__ is None
    )


@pytest.mark.parametrize("wrong", ["api_key", {"a": 1}, 5, [5]])
def test_redact_refuses_what_makes_no_sense(wrong):
    with pytest.raises(BadInput, match="redact"):
        core.Context(redact=wrong)


def test_a_dictionary_that_changes_under_the_walk_ends_nothing():
    """A function of the user's may change what is being walked; iterating it raised, and took the step along."""
    value = {"a": 1, "b": {"c": 1}}

    def redact(path, item):
        value.pop("a", None)
        value[len(value)] = path
        return item

    roundtrip(value, redact=redact)
