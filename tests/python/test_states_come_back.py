"""A state that cannot come back is refused before anything is written; elsewhere an object without data is warned about."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest


class Sampler:
    """Only a repr can be recorded of it."""


class Other:
    pass


def by_first(episode: keepstep.Episode, state: Any) -> None:
    episode.first("o", state=state)


def by_step(episode: keepstep.Episode, state: Any) -> None:
    episode.step(action="a", state=state)


def by_submit(episode: keepstep.Episode, state: Any) -> None:
    episode.submit(action="a", state=state)


def by_turn(episode: keepstep.Episode, state: Any) -> None:
    with episode.turn(action="a") as turn:
        try:
            turn.result(state=state)
        except keepstep.BadInput:
            turn.discard("refused")
            raise


WAYS = [by_first, by_step, by_submit, by_turn]
STATES = {
    "itself": ({"sampler": Sampler()}, r"state\.sampler"),
    "inside": ({"all": {"parts": [1, {"of": Sampler()}]}}, r"state\.all\.parts\[1\]\.of"),
    "in a set": ({"all": [Sampler, {Sampler()}]}, r"state\.all\[1\]\[0\]"),
    "long": ({"all": ["x" * 5000, Sampler()]}, r"state\.all\[1\]"),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("record", WAYS)
def test_a_state_that_cannot_come_back_is_refused(run: keepstep.Run, record: Any, name: str) -> None:
    """Whichever way it is recorded: the path is named, nothing is written, and the episode goes on."""
    state, path = STATES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run.episode("t") as episode:
            with pytest.raises(
                keepstep.BadInput, match=rf"^{path} is an object of .*Sampler.*keepstep\.register"
            ):
                record(episode, state)
            record(episode, {"fine": [1]})
            episode.end("finished")
    steps = [step for view in run.episodes() for step in view.steps]
    assert [step.state for step in steps] == [{"fine": [1]}]


def test_what_was_looked_at_elsewhere_in_the_call_is_looked_at_again(run: keepstep.Run) -> None:
    """The same long object may be an observation, and not a state."""
    both = {"long": "x" * 10_000, "sampler": Sampler()}
    with run.episode("t") as episode:
        with pytest.warns(keepstep.RecordedAsRepr, match=r"observation\.sampler"):
            with pytest.raises(keepstep.BadInput, match=r"state\.it\.sampler"):
                episode.step(observation=both, state={"it": both})
        episode.end("finished")


def test_the_warning_comes_once_for_each_class_and_field(run: keepstep.Run) -> None:
    """Whoever mended one field hears of the next."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with run.episode("t") as episode:
            for _ in range(3):
                episode.step(observation=[Sampler(), Sampler()], info={"a": Sampler(), "b": Other()})
            episode.end("finished")
    places = [
        str(it.message).partition(" is an object")[0] for it in told if it.category is keepstep.RecordedAsRepr
    ]
    assert places == ["observation[0]", "info.a", "info.b"]


def test_what_an_older_version_kept_as_text_can_be_kept_on(run: keepstep.Run) -> None:
    """A marked text that was read back is recorded again as what it is."""
    with run.episode("t") as episode:
        episode.step(state={"sampler": keepstep.Repr("app.Sampler", "<Sampler>")})
        episode.end("finished")
    (view,) = run.episodes()
    assert view.steps[0].state == {"sampler": "<Sampler>"}


KILLED = """
import os, signal, sys
import keepstep

class Sampler: pass

with keepstep.open(sys.argv[1]).run("shop").episode("t") as episode:
    if episode.attempt == 0:
        episode.step(action="a", state={"sampler": 1})
        try:
            episode.step(action="b", state={"sampler": Sampler()})
        except keepstep.BadInput as refused:
            assert str(refused).startswith("state.sampler is an object of"), refused
        os.kill(os.getpid(), signal.SIGKILL)
    assert (episode.turns, episode.state("sampler")) == (1, 1)
    episode.end("finished").wait()
"""


def test_after_kill_9_the_state_before_the_refusal_is_there(tmp_path: Path) -> None:
    """Nothing of the refused step was written."""
    outside.run(KILLED, tmp_path / "runs", code=outside.KILLED)
    outside.run(KILLED, tmp_path / "runs")


def test_an_environment_whose_reset_is_given_an_odd_object_is_recorded(run: keepstep.Run) -> None:
    """What a reset was given is kept only where it is needed to reset again."""
    gymnasium = pytest.importorskip("gymnasium")
    env = keepstep.record(gymnasium.make("CartPole-v1"), run, task="cart", environment="restart")
    with pytest.warns(RuntimeWarning, match="reset"):
        env.reset(seed=1, options={"sampler": Sampler()})
    env.step(0)
    env.close()
    (view,) = run.episodes()
    assert len(view.steps) == 2
