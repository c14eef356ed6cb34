"""What a first user stumbled over: errors without a way out, warnings that blamed another, steps on top of steps."""

from __future__ import annotations

import ast
import asyncio
import http.client
import importlib.util
import inspect
import json
import re
import socket
import struct
import threading
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import keepstep
import pydantic
import pytest
from keepstep import _endings, _loops, adapting
from left_behind import leave
from toy_envs import GymCorridor

ROOT = Path(__file__).parents[2]
PACKAGE = Path(keepstep.__file__).parent
PATIENCE_S = 60


def loaded(path: Path) -> ModuleType:
    """A script, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What diverged says what can be done about it.

WAYS = r'key=.*at=2.*resume="restart"'


def test_what_diverged_says_is_a_way_out_is_one(run: keepstep.Run) -> None:
    """Another key, an earlier step, a new beginning: each takes the call that was refused."""

    def asked(**how: Any) -> Any:
        leave(run, calls=True)
        key = how.pop("key", None)
        with run.episode("t", **how) as episode:
            came = episode.call("llm", lambda it: it, "something else", key=key)
            episode.end("aborted")
        return came

    with pytest.raises(keepstep.Diverged):
        asked()
    for way in ({"key": "another"}, {"at": 2}, {"resume": "restart"}):
        assert asked(**way) == "something else", way


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        pytest.param(lambda it: it.call("llm", lambda _: 1, "other"), WAYS, id="arguments"),
        pytest.param(lambda it: it.call("other", lambda _: 1, "asked"), WAYS, id="name"),
        pytest.param(lambda it: it.call("llm", lambda _: 1, "asked", returns=int), WAYS, id="class"),
    ],
)
def test_a_call_that_diverged_names_the_ways_out(run: keepstep.Run, asks: Any, says: str) -> None:
    """It said what differs, and left people alone with that."""
    leave(run, calls=True)
    with pytest.raises(keepstep.Diverged, match=says), run.episode("t") as episode:
        asks(episode)


def test_a_turn_that_diverged_names_the_ways_out(run: keepstep.Run) -> None:
    leave(run, says="buy")
    says = r'episode\.pending\.discard.*at=2.*resume="restart"'
    with pytest.raises(keepstep.Diverged, match=says), run.episode("t") as episode:
        episode.turn(action="sell").__enter__()


def test_a_replay_that_diverged_names_the_way_out(run: keepstep.Run) -> None:
    def env(goal: int) -> Any:
        return keepstep.record(GymCorridor(goal=goal), run, task="t", sample=0, environment="replay")

    first = env(6)
    first.reset(seed=1)
    first.step(2)
    first.close()
    with pytest.raises(keepstep.Diverged, match=r'its end.*environment="restart"'):
        env(1).reset(seed=1)
    with pytest.raises(keepstep.Diverged, match=r'reward.*environment="restart"'):
        adapting.check_same(3, {"reward": 1.0}, {"reward": 2.0})


# What a function gave is not the function.


async def ask(question: str) -> str:
    return f"{question}? yes"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: ask("where"), r"coroutine <coroutine object ask .*episode\.call\('llm', ask, \.\.\.\)"),
        (lambda: "where? yes", r"'where\? yes': .*episode\.call\('llm', ask, \.\.\.\)"),
        (lambda: None, r"None: .*episode\.call\('llm', ask, \.\.\.\)"),
        (lambda: (it for it in "ab"), r"generator .*episode\.call\('llm', ask, \.\.\.\)"),
    ],
)
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_result_in_place_of_the_function_is_refused(
    run: keepstep.Run, made: Callable[[], Any], told: str, is_recorded: bool
) -> None:
    """`episode.call("llm", ask(x))` was an AttributeError, and a warning about a coroutine that nobody awaits."""
    run = run if is_recorded else keepstep.open(None).run("shop")
    with warnings.catch_warnings(), run.episode("t") as episode:
        warnings.simplefilter("error")
        given = made()
        with pytest.raises(keepstep.BadInput, match=f"fn is (the )?{told}"):
            episode.call("llm", given)
        if inspect.iscoroutine(given):
            assert given.cr_frame is None, "nobody will await it: it is closed"
        # Nothing of it is on record: the right call is the first one.
        assert episode.call("llm", lambda: 1) == 1
        episode.end("finished")


def test_what_others_await_is_not_closed(run: keepstep.Run) -> None:
    """A task belongs to whoever made it."""

    async def main() -> str:
        async with run.episode("t") as episode:
            task = asyncio.ensure_future(ask("where"))
            with pytest.raises(keepstep.BadInput, match="fn is the Task"):
                episode.call("llm", task)
            episode.end("finished")
            return await task

    assert asyncio.run(main()) == "where? yes"


# Who stops an event loop is told what did, and what does not.


BLOCKS: dict[str, tuple[Callable[[keepstep.Run, keepstep.Episode], Any], str]] = {
    "call": (lambda run, it: it.call("llm", lambda: 1), r"call 'llm' runs a function.*asyncio\.to_thread"),
    "step": (lambda run, it: it.step(action=1), r"the disk.*await episode\.submit"),
    "receipt": (lambda run, it: it.submit(action=1).wait(), r"the disk.*`await` the receipt"),
    "turn": (lambda run, it: it.turn(action=1).__enter__(), r"the disk.*async with"),
    "list": (lambda run, it: it.trajectory().append(1), r"the disk.*to_thread\(trajectory\.append"),
    "follow": (lambda run, it: next(run.store.find(it.ref).follow()), r"new steps.*afollow"),
    "open": (lambda run, it: run.episode("lazy").turns, r"the disk.*enter the episode with `async with`"),
    "environment": (
        lambda run, it: keepstep.record(GymCorridor(), run, task="env").reset(),
        r"the disk.*in a thread",
    ),
}


@pytest.mark.parametrize("what", BLOCKS)
def test_what_stops_an_event_loop_is_told_as_it_is(
    run: keepstep.Run, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A slow function of the caller was called a wait for the disk, and all were told to await a receipt."""
    do, says = BLOCKS[what]

    async def main() -> None:
        async with run.episode("t") as episode:
            await episode.submit(action=1)
            monkeypatch.setattr(_loops, "_has_warned", False)
            monkeypatch.setattr(_loops, "_has_warned_of_calls", False)
            do(run, episode)
            episode.end("finished")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
    told = [it for it in caught if "event loop" in str(it.message)]
    assert len(told) == 1 and re.search(says, str(told[0].message)), [str(it.message) for it in told]
    assert Path(told[0].filename).name == Path(__file__).name


def test_calls_that_stop_no_loop_are_not_warned_of(
    run: keepstep.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded answer is there at once, an async function waits by itself, and a thread stops nobody."""
    monkeypatch.setattr(_loops, "_has_warned_of_calls", False)
    leave(run, calls=True)

    async def main() -> None:
        async with run.episode("t") as episode:
            assert episode.call("llm", lambda it: it, "asked") == "asked"
            assert await episode.call("slow", ask, "who") == "who? yes"
            assert await episode.call("given", lambda: ask("why")) == "why? yes"
            assert await asyncio.to_thread(episode.call, "thread", lambda: 1) == 1
            episode.end("finished")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


@pytest.mark.parametrize("how", ["step", "submit", "turn", "call", "note", "first"])
def test_after_its_store_was_closed_an_episode_says_so(tmp_path: Path, how: str) -> None:
    """It said that the episode is over, which whoever closed the store by mistake does not understand."""
    store = keepstep.open(tmp_path / "store")
    episode = store.run("shop").episode("t").__enter__()
    store.close()
    ways: dict[str, Callable[[], Any]] = {
        "step": lambda: episode.step(action=1),
        "submit": lambda: episode.submit(action=1),
        "turn": lambda: episode.turn(action=1).__enter__(),
        "call": lambda: episode.call("llm", lambda: 1),
        "note": lambda: episode.note("score", 1, source="me"),
        "first": lambda: episode.first("you enter"),
    }
    with pytest.raises(keepstep.Closed, match="closed"):
        ways[how]()


# What is logged and warned of goes to a terminal: recorded text only as it may be shown there.

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def is_safe(told: ast.expr, kind: str) -> bool:
    """True for numbers, names of types, and what went through `shown`."""
    if kind == "d":
        return True
    if isinstance(told, ast.Attribute) and told.attr == "__name__":
        return isinstance(told.value, ast.Call) and ast.unparse(told.value.func) == "type"
    return isinstance(told, ast.Call) and ast.unparse(told.func).split(".")[-1] == "shown"


def raw_logs(source: str) -> Iterator[str]:
    """Calls of a logger that are given text as it was recorded."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in LEVELS or not ast.unparse(node.func.value).endswith("logger"):
            continue
        words = node.args[0] if node.args else None
        if not isinstance(words, ast.Constant) or not isinstance(words.value, str):
            yield f"{node.lineno}: {ast.unparse(node)}"
            continue
        kinds = [kind for kind in re.findall(r"%[-#0 +]*[\d.]*([a-z%])", words.value) if kind != "%"]
        told = node.args[1:]
        if len(kinds) != len(told) or not all(map(is_safe, told, kinds)):
            yield f"{node.lineno}: {ast.unparse(node)}"


def raw_warnings(source: str) -> Iterator[str]:
    """Calls of `warnings.warn` with anything but fixed words: `warn_caller` is for these."""
    tree = ast.parse(source)
    itself = [it for it in ast.walk(tree) if isinstance(it, ast.FunctionDef) and it.name == "warn_caller"]
    allowed = {id(node) for function in itself for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "warn"):
            if id(node) not in allowed and not (node.args and isinstance(node.args[0], ast.Constant)):
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_recorded_text_reaches_a_terminal_as_it_is() -> None:
    """The adapters and wrappers logged refs and reasons raw: a task named by a website could clear the screen."""
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    found = [
        f"{name}:{raw}"
        for name, source in sources.items()
        for raw in [*raw_logs(source), *raw_warnings(source)]
    ]
    assert not found, "\n".join(found)
    assert sum(source.count("logger.") for source in sources.values()) > 15, "they are looked for rightly"


@pytest.mark.parametrize(
    "line",
    [
        'logger.warning("%s is gone", ref)',
        'logger.exception("%s is gone", self.ref)',
        'logger.warning("%r is gone", name)',
        'logger.warning(f"{ref} is gone")',
        'logger.warning("%d of %s", 1, shown(a), b)',
        'self.logger.error("%s", str(error))',
        'warnings.warn(f"{ref} is gone", RuntimeWarning)',
        "warnings.warn(text)",
    ],
)
def test_recorded_text_on_its_way_to_a_terminal_is_found(line: str) -> None:
    assert [*raw_logs(line), *raw_warnings(line)]


@pytest.mark.parametrize(
    "line",
    [
        'logger.warning("%d%% of %s", count, shown(ref))',
        'logger.warning("a %s", type(error).__name__, exc_info=True)',
        'logger.warning("a reset failed")',
        'warnings.warn("a debug build", RuntimeWarning, stacklevel=2)',
        "def warn_caller(text):\n    warnings.warn(shown(text))",
    ],
)
def test_what_a_terminal_may_have_is_not_found(line: str) -> None:
    assert not [*raw_logs(line), *raw_warnings(line)]


# A model comes back as its fields.


class Told(pydantic.BaseModel):
    text: str
    type: str = "text"
    retries: int = 3
    large: int = 300
    tags: list[str] = pydantic.Field(default_factory=list)
    note: str | None = None
    given: str | None = None
    needed: str | None
    listed: list[str] | None = pydantic.Field(default_factory=list)
    _request: str = pydantic.PrivateAttr(default="none")


def test_what_is_not_recorded_of_a_model_is_the_same_both_times(run: keepstep.Run) -> None:
    """Small numbers that are the default counted as not set, texts and large ones as set, and no page said what private
    attributes are."""
    original = Told(text="hi", given=None, needed=None, listed=None)
    original._request = "r-1"

    def asked() -> Told:
        came = None
        with pytest.raises(RuntimeError), run.episode("t") as episode:
            came = episode.call("llm", lambda: original, returns=Told)
            raise RuntimeError("gone")
        assert isinstance(came, Told)
        return came

    both = [asked(), asked()]
    assert both[0] is not both[1]
    for came in both:
        assert came.model_dump() == original.model_dump()
        assert came.model_fields_set == {"text", "type", "retries", "large", "tags", "needed", "listed"}
        assert came._request == "none"


# The runtime takes what the stub takes.


@pytest.mark.parametrize("coming", [{}, {"after": ""}, {"follow": True}])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_episodes_are_chosen_by_endings_only(
    run: keepstep.Run, coming: dict[str, Any], is_recorded: bool
) -> None:
    """`ends=["interrupted"]` was taken, and is no ending: the stub says so."""
    run = run if is_recorded else keepstep.open(None).run("shop")
    accepted = set(typing.get_args(_endings.Why))
    for state in ("interrupted", "running", "silent", "new", ""):
        with pytest.raises(keepstep.BadInput, match=f"ends.*{state}") as refused:
            run.episodes(ends=[state], **coming)  # type: ignore[list-item]
        named = set(re.findall(r"[a-z]+", str(refused.value).partition("give some of")[2]))
        assert named == accepted
    if not coming:
        assert list(run.episodes(ends=sorted(accepted))) == []  # type: ignore[arg-type]


# The pages.


def stores_of(page: str) -> set[str]:
    """The folders that the examples of a page record to."""
    code = "\n".join(re.findall(r"^```.*?^```", page, re.M | re.S))
    return set(re.findall(r"""["']([\w./-]*runs)["']""", code)) | set(
        re.findall(r"keepstep \w+ (?:-s )?([\w./-]*runs)\b", code)
    )


def test_no_two_pages_record_to_the_same_store() -> None:
    """Two guides that were tried in one folder met in `shop-agent/shop-17`: over, or with another config."""
    pages = {path.name: stores_of(path.read_text()) for path in ROOT.glob("docs/[cg]*/*.md")}
    # The front page and the tutorial use the folder that commands look in by themselves, each with runs of its own.
    pages["README.md"] = pages["tutorial.md"] = {"runs"}
    front = [(ROOT / page).read_text() for page in ("README.md", "docs/tutorial.md")]
    runs_of = [set(re.findall(r'\.run\("([^"]+)"', page)) for page in front]
    assert all(runs_of) and not runs_of[0] & runs_of[1]
    owners: dict[str, list[str]] = {}
    for page, stores in pages.items():
        for store in stores:
            owners.setdefault(store, []).append(page)
    # Where a cluster keeps its stores is not in the reader's folder.
    shared = {store: names for store, names in owners.items() if len(names) > 1 and "/" not in store}
    assert shared == {"runs": ["README.md", "tutorial.md"]}
    assert len(owners) > 15, "they are looked for rightly"
    assert stores_of('```python\nkeepstep.open("runs")\n```\n```sh\nkeepstep ls -s other-runs\n```\n') == {
        "runs",
        "other-runs",
    }


def lake_walk(run: keepstep.Run, sample: int, breaks_at: int | None, how: str) -> list[int]:
    """The fields that a walk on a slippery lake comes to, interrupted before a step and resumed."""
    page: dict[str, Any] = {}
    guide = (ROOT / "docs" / "guides" / "gymnasium.md").read_text()
    exec(re.findall(r"^```python\n(def get_with_random.*?)^```", guide, re.M | re.S)[0], page)
    get, put = page["get_with_random"], page["set_with_random"]
    if how == "without":
        get, put = lambda env: int(env.unwrapped.s), lambda env, state: setattr(env.unwrapped, "s", state)
    given: dict[str, Any] = {"environment": "replay"} if "replay" in how else {"state": (get, put)}

    def begin() -> Any:
        lake = gymnasium.make("FrozenLake-v1", is_slippery=True)
        lake.unwrapped.np_random = numpy_generator(sample)
        env = keepstep.record(lake, run, task=f"lake-{how}", sample=sample, **given)
        return env, env.reset() if how == "replay unseeded" else env.reset(seed=sample)

    env, (field, _) = begin()
    fields = [int(field)]
    for turn in range(8):
        if turn == breaks_at:
            env.close()
            env, (field, _) = begin()
            assert int(field) == fields[-1]
        field, _, terminated, truncated, _ = env.step(1 + turn % 2)
        fields.append(int(field))
        if terminated or truncated:
            break
    env.close()
    return fields


def numpy_generator(seed: int) -> Any:
    import numpy

    return numpy.random.default_rng(seed)


@pytest.mark.parametrize("how", ["with", "replay", "replay unseeded", "without"])
def test_random_numbers_go_on_if_they_are_part_of_the_state(store: keepstep.Store, how: str) -> None:
    """The page did not say that `restore` puts back the state alone, and not the generator beside it."""
    straight = [lake_walk(store.run("straight"), seed, None, how) for seed in range(8)]
    resumed = [lake_walk(store.run("resumed"), seed, 2, how) for seed in range(8)]
    assert (straight == resumed) is (how != "without")


def test_what_adapters_are_offered_is_in_the_reference() -> None:
    """`keepstep.adapting` was on no page but its guide."""
    reference = loaded(ROOT / "tools" / "reference.py")
    assert sorted(reference.FOR_ADAPTERS) == sorted(adapting.__all__)
    page = (ROOT / "docs" / "reference.md").read_text().partition("## For adapters")[2]
    for name in adapting.__all__:
        assert f"\n### `{name}`\n" in page, name
        offered = getattr(adapting, name)
        # What stands behind a constant is not its own docstring.
        if isinstance(offered, type) or (callable(offered) and name != "Where"):
            assert (offered.__doc__ or "").partition("\n")[0] in page, name


# The server of the agent's example.


def killed_client(address: Any, sent: bytes) -> None:
    """A client that is gone before it hears an answer: the system resets its connection."""
    with socket.create_connection(address) as client:
        client.sendall(sent)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def asked_of(body: bytes, length: int | None = None) -> bytes:
    head = f"POST /v1/chat HTTP/1.1\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


def test_the_model_server_is_quiet_about_killed_clients_only(capfd: pytest.CaptureFixture[str]) -> None:
    """Each kill of the agent printed a traceback for each of its connections."""
    model = loaded(ROOT / "examples" / "agent" / "model.py")
    server = model.Server(("127.0.0.1", 0), model.Handler)
    # So that closing it waits for all who are being served.
    server.daemon_threads = False
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    right = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    try:
        for _ in range(5):
            killed_client(server.server_address, asked_of(right))
            killed_client(server.server_address, asked_of(right[:9], len(right)))
            killed_client(server.server_address, b"POST /v1/ch")
        client = http.client.HTTPConnection(*server.server_address)
        client.request("POST", "/v1/chat", right)
        assert b"answer" in client.getresponse().read()
        client.close()
        with socket.create_connection(server.server_address) as client_of_its_own:
            client_of_its_own.sendall(asked_of(b"not json"))
            client_of_its_own.shutdown(socket.SHUT_WR)
            assert client_of_its_own.recv(100) == b""
    finally:
        server.shutdown()
        serving.join(PATIENCE_S)
        server.server_close()
    told = capfd.readouterr().err
    assert told.count("Traceback") == 1 and "JSONDecodeError" in told, told
