"""Forks beside threads that do everything: no child inherits a lock that nobody there will ever let go."""

from __future__ import annotations

from pathlib import Path

import outside

# What a child does, beside all that it inherited. The watchdog tells where it hung.
FORKING = """
    import faulthandler, os, sys, threading, time
    import keepstep
    from toy_envs import GymCorridor

    where, rounds = sys.argv[1], int(sys.argv[2])
    store = keepstep.open(where)
    other = keepstep.open(where)
    run = store.run("shop")
    run.plan([f"planned-{n}" for n in range(2000)])
    held = run.episode("held").__enter__()
    held.step(action=0)
    stream = run.stream("entries")
    view = store.find("shop/held")
    is_over = False

    def again(what):
        def loop():
            number = 0
            while not is_over:
                what(number)
                number += 1
        threading.Thread(target=loop, daemon=True).start()

    def busy(number):
        try:
            other.run("shop").episode("held").__enter__()
        except keepstep.Busy:
            pass

    def reset(number):
        env = keepstep.record(GymCorridor(), run, task=f"env-{number}")
        env.reset()
        env.close()

    def work(number):
        for job in run.remaining():
            with job.episode() as episode:
                episode.end("finished")
            return

    again(lambda number: store.reap())
    again(lambda number: store.find("shop/held").steps[0])
    again(lambda number: view.steps[0])
    again(busy)
    again(lambda number: held.step(action=number))
    again(lambda number: held.note("score", number, source="judge"))
    again(lambda number: stream.put(f"entry {number}", number).wait())
    again(work)
    again(reset)
    again(lambda number: time.sleep(0.001))

    INHERITED = {
        "step": lambda: held.step(action="child"),
        "find": lambda: store.find("shop/held"),
        "view": lambda: view.steps[0],
        "put": lambda: stream.put("child", 1),
        "remaining": lambda: next(iter(run.remaining())),
        "reap": lambda: store.reap(),
        "stats": lambda: store.stats(),
        "reset": lambda: keepstep.record(GymCorridor(), run, task="inherited").reset(),
    }

    def child(number):
        for name, call in INHERITED.items():
            try:
                call()
            except keepstep.Forked:
                continue
            return f"{name} is not refused"
        own = keepstep.open(where).run("child")
        with own.episode("t", sample=number) as episode:
            episode.step(action=number)
            episode.end("finished")
        env = keepstep.record(GymCorridor(), own, task="env", sample=number)
        env.reset()
        env.close()
        return None if own.store.find(f"child/t#0.{number}").steps[0].action == number else "reads something else"

    for number in range(rounds):
        pid = os.fork()
        if pid == 0:
            faulthandler.dump_traceback_later(30, exit=True)
            wrong = child(number)
            if wrong:
                print(wrong, file=sys.stderr, flush=True)
            if number % 10 == 0 and not wrong:
                sys.exit(0)  # cleans up as if all this were its own
            os._exit(bool(wrong))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            print(f"child {number} of {rounds}: {status}", file=sys.stderr, flush=True)
            os._exit(1)
    is_over = True
    os._exit(0)
"""


def test_forks_beside_busy_threads_never_hang(tmp_path: Path) -> None:
    """A child opens a store of its own, records and reads, whatever its parent's threads were doing; what it inherited is
    refused, and cleaned up without a word."""
    outside.run(FORKING, tmp_path / "runs", 60, timeout_s=300)
