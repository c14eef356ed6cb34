"""What is recorded is the value at the time of the call, whatever happens to the objects afterwards."""

from __future__ import annotations

import copy

import numpy
import pytest
from coming_back import Recording, alike, plain
from hypothesis import given, settings
from keepstep.errors import BadInput


@given(value=plain)
@settings(max_examples=25, deadline=None)
def test_values_come_back_from_a_store(value, tmp_path_factory):
    recording = Recording(tmp_path_factory.mktemp("store"))
    episode = recording.__enter__()
    for _ in range(2):
        episode.submit({"observation": value, "state": {"s": [value]}, "prompt": [value, value]}).wait()
    del episode
    for step in recording.read():
        assert alike(step["observation"], value) and alike(step["state"], {"s": [value]})
        assert alike(step["prompt"], [value, value])


def test_what_changes_after_the_call_is_not_seen(tmp_path):
    array, data = numpy.zeros(1000), bytearray(b"a" * 1000)
    messages = [{"role": "user", "content": ["x" * 400]}]
    recording = Recording(tmp_path)
    episode = recording.__enter__()
    receipt = episode.submit({"observation": array, "action": data, "prompt": messages})
    array[:], data[0], messages[0]["role"] = 1, 0, "changed"
    messages[0]["content"].append("more")
    receipt.wait()
    with pytest.raises(BadInput):
        episode.submit({"observation": array, "prompt": messages, "reward": "0.1"})
    episode.say({"prompt": messages}, True)
    error = {"type": "E", "message": "m", "traceback": ["t"]}
    receipt = episode.result({"error": error}, False)
    error["traceback"].append("changed")
    receipt.wait()
    del episode
    first, second = recording.read()
    assert not first["observation"].any() and first["action"] == bytearray(b"a" * 1000)
    assert first["prompt"] == [{"role": "user", "content": ["x" * 400]}]
    assert second["prompt"] == [{"role": "changed", "content": ["x" * 400, "more"]}]
    assert second["error"] == {"type": "E", "message": "m", "traceback": ["t"]}


def changes(messages):
    """All sorts of changes to a history, deep and shallow, that leave most of its objects in place."""
    yield lambda: None
    yield lambda: messages.append({"role": "user", "content": "n" * 500})
    yield lambda: messages[0].update(content="c" * 500)
    yield lambda: messages[1]["content"][0].update(text="t" * 500)
    yield lambda: messages[1]["content"].append({"type": "text", "text": "u" * 500})
    yield lambda: messages[1]["content"].pop(0)
    yield lambda: messages[2].update(extra=1.5)
    yield lambda: messages[2].pop("extra")
    yield lambda: messages[2].update(role=messages[2].pop("role"))  # the same entries in another order
    yield lambda: messages.insert(0, messages.pop())
    yield lambda: messages.__setitem__(3, ("tuple", "p" * 500))
    yield lambda: messages.__setitem__(3, ["tuple", "p" * 500])
    yield lambda: messages.__setitem__(3, "s" * 500)
    yield lambda: messages.__setitem__(0, dict(messages[0], content=1))
    yield lambda: messages.clear()


def test_a_history_that_is_known_again_is_never_an_old_one(tmp_path):
    """Every kind of change to a history is seen, though items that did not change are not read again."""
    messages = [{"role": "user", "content": f"{i}" * 500} for i in range(5)]
    messages[1]["content"] = [
        {"type": "text", "text": "a" * 500},
        {"type": "image", "data": b"b" * 500, "n": 2**80},
    ]
    recording, expected = Recording(tmp_path), []
    episode = recording.__enter__()
    for change in changes(messages):
        change()
        for _ in range(2):
            expected.append(copy.deepcopy(messages))
            episode.submit({"prompt": messages, "state": {"m": messages}}).wait()
    del episode
    steps = recording.read()
    assert [step["prompt"] for step in steps] == expected
    assert all(alike(step["state"]["m"], messages) for step, messages in zip(steps, expected, strict=True))


def test_a_history_is_known_again_with_names_hidden(tmp_path):
    messages = [{"role": "user", "token": "s3cret" * 100, "content": "x" * 500}]
    recording = Recording(tmp_path, redact=["token"])
    episode = recording.__enter__()
    for _ in range(3):
        episode.submit({"prompt": messages}).wait()
    del episode
    assert "s3cret" not in repr(recording.read())


def test_a_history_of_the_same_objects_is_not_read_again(tmp_path):
    """The promise that a step with a long history is cheap rests on this: counted, not timed."""
    messages = [{"role": "user", "content": f"{i}" * 500} for i in range(20)]
    recording = Recording(tmp_path)
    episode = recording.__enter__()
    counts = []
    for _ in range(3):
        messages.append({"role": "user", "content": "n" * 500})
        before = recording.context.recalled
        episode.submit({"prompt": messages}).wait()
        counts.append(recording.context.recalled - before)
    assert counts == [0, 21, 22]
    messages[3]["content"] += "changed"
    before = recording.context.recalled
    episode.submit({"prompt": messages}).wait()
    assert recording.context.recalled - before == 22
