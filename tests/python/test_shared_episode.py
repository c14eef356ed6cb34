"""One episode, several threads, and a disk that takes nothing: no thread of them, nor the process, stands still."""

from __future__ import annotations

from pathlib import Path

import outside
import pytest

ASKS = {
    "turns": "episode.turns",
    "state": "episode.state('n')",
    "ended": "episode.ended",
    "pending": "episode.pending",
    "submit": "tried(lambda: episode.submit(action=3))",
    "note": "tried(lambda: episode.note('n', 1, source='s'))",
    "repr": "repr(episode)",
}
WAITS = {
    "step": "episode.step(action=2)",
    "turn": "episode.turn(action=2).__enter__()",
    "result": "turn.result(observation=2); turn.__exit__(None, None, None)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_thread_that_waits_for_room_holds_nothing_that_others_need(tmp_path: Path, wait: str) -> None:
    """It held the episode while it waited, and asked for the interpreter now and then, to hear Ctrl-C. Another thread had
    the interpreter and asked for the episode: the whole process stood still, also when the disk took writes again."""
    script = f"""
        import sys, threading, time, keepstep, slow_disk, test_api_receipts
        def tried(call):
            try:
                call()
            except (keepstep.Busy, keepstep.BadInput):
                pass
        store = keepstep.open(sys.argv[1], stall_s=600.0)
        run = store.run("r")
        other, episode = run.episode("other").__enter__(), run.episode("t").__enter__()
        if {wait == "result"}:
            turn = episode.turn(action=1).__enter__()
        slow_disk.stop()
        test_api_receipts.fill(other)
        waiter = threading.Thread(target=lambda: [{WAITS[wait].replace("; ", ", ")}])
        waiter.start()
        time.sleep(0.3)
        for _ in range(20):
            time.sleep(0.02)
            {"; ".join(ASKS.values())}
        slow_disk.go_on()
        waiter.join()
        store.close()
        print("went on")
    """
    assert outside.run(script, tmp_path / "runs") == "went on\n"
