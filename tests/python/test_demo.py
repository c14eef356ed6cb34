"""The demo shows what it says: nothing lost, nothing doubled, and it would tell."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import keepstep
import pytest
from keepstep import _demo
from keepstep._demo_agent import Shop, seed_of, steps_of, think


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "keepstep", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_killed_run_goes_on_and_equals_one_in_one_go(tmp_path: Path) -> None:
    where = tmp_path / "runs"
    shown = demo(str(where), "--episodes", "8", "--steps", "20", "--pause-ms", "40")
    assert shown.returncode == 0, shown.stderr
    assert "was killed with -9" in shown.stderr
    assert "the same steps, none lost, none doubled" in shown.stderr
    store = keepstep.open(where)
    for name in ("demo", "demo-in-one-go"):
        views = list(store.run(name).episodes())
        lengths = {view.task: len(view.steps) for view in views}
        assert lengths == {f"shop-{seed}": steps_of(seed, 19) for seed in range(1, 9)}
        assert {view.ending.why for view in views if view.ending} <= {"finished", "truncated"}
    # At least one was in the middle of it when the recorder was killed.
    assert any(view.attempt > 0 for view in store.run("demo").episodes())
    assert all(view.attempt == 0 for view in store.run("demo-in-one-go").episodes())


def test_it_can_be_seen_twice(tmp_path: Path) -> None:
    for _ in range(2):
        shown = demo(str(tmp_path / "runs"), "--episodes", "1", "--steps", "3", "--pause-ms", "0")
        assert shown.returncode == 0, shown.stderr
    names = sorted(run.name for run in keepstep.open(tmp_path / "runs").runs())
    assert names == ["demo", "demo-2", "demo-2-in-one-go", "demo-in-one-go"]


def test_wrong_arguments_are_usage() -> None:
    shown = demo("--episodes", "0")
    assert shown.returncode == 2
    assert "'0' is not a number from 1 to 512" in shown.stderr


@dataclass
class FakeStep:
    index: int
    action: str = "walk"
    kind: str = "MID"
    observation: str = "a shelf"
    prompt: str = ""
    response: str = ""
    reward: float = 0.0
    info: None = None
    state: None = None


@pytest.mark.parametrize(
    ("here", "found"),
    [
        ([FakeStep(0), FakeStep(1), FakeStep(2)], (0, 0, 0)),
        ([FakeStep(0), FakeStep(1)], (1, 0, 0)),
        ([FakeStep(0), FakeStep(1), FakeStep(1), FakeStep(2)], (0, 1, 0)),
        ([FakeStep(0), FakeStep(1, action="pay"), FakeStep(2)], (0, 0, 1)),
        ([FakeStep(0), FakeStep(1), FakeStep(2), FakeStep(3)], (0, 0, 1)),
    ],
)
def test_what_is_lost_doubled_or_different_is_told(here: list[FakeStep], found: tuple[int, int, int]) -> None:
    there = [FakeStep(0), FakeStep(1), FakeStep(2)]
    assert _demo.compared(here, there) == found  # type: ignore[arg-type]


def test_the_shop_goes_on_from_a_snapshot() -> None:
    """At every step, a shop made from the snapshot does what the first one does."""
    shop = Shop(30)
    seen, _ = shop.reset(seed=seed_of("shop-3"))
    while not shop.is_over:
        action = think([{"role": "user", "content": seen}]).partition("ACTION: ")[2]
        other = Shop(30)
        other.restore(shop.snapshot())
        result = shop.step(action)
        assert other.step(action) == result
        assert other.snapshot() == shop.snapshot()
        seen = result[0]


def test_it_needs_no_gymnasium() -> None:
    """The wheel brings no other package; with Gymnasium the shop is one of its environments."""
    code = """
import sys
sys.modules["gymnasium"] = None
from keepstep._demo_agent import Shop
print(Shop.__mro__[1].__name__, Shop(9).reset(seed=1)[1])
"""
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert alone.stdout.startswith("object {'shelves': "), alone.stderr
    gymnasium = pytest.importorskip("gymnasium")
    assert isinstance(Shop(9), gymnasium.Env)
