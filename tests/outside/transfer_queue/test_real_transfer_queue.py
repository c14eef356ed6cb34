"""The backend under the real TransferQueue: its tensors, its own tests, its flow killed with -9 and run again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
import torch
import transfer_queue
from docs_pages import run_page
from keepstep.adapters.transfer_queue import KeepstepStorageClient
from outside import environment, run, start
from signatures import differences
from tensordict import NonTensorData, TensorDict

HERE = Path(__file__).parent
# Its tests are installed beside it.
ITS_TESTS = Path(transfer_queue.__file__).parent.parent / "tests"
STORAGE = "transfer_queue.storage"
# Ray would tell its makers that it is used.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

Suite = Callable[[str, int, int], None]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (f"{STORAGE}.bootstrap.provider", ["StorageBootstrapProvider"]),
        (f"{STORAGE}.clients.base", ["StorageKVClient", "StorageClientFactory"]),
        (f"{STORAGE}.managers.base", ["StorageManager", "StorageManagerFactory", "KVStorageManager"]),
        (f"{STORAGE}.simple_storage", ["StorageKeyNotFoundError"]),
    ],
)
def test_the_stand_ins_are_like_the_real_ones(module: str, names: list[str]) -> None:
    assert differences(module, *names) == []


def test_the_helpers_that_the_manager_calls_are_there() -> None:
    """They have no public name, so the comparison above does not look at them."""
    import inspect

    from transfer_queue.storage.managers.base import KVStorageManager

    expected = {
        "_generate_keys": ["field_names", "global_indexes"],
        "_get_shape_type_custom_backend_meta_list": ["metadata"],
        "_merge_tensors_to_tensordict": ["self", "metadata", "values"],
    }
    for name, parameters in expected.items():
        assert list(inspect.signature(getattr(KVStorageManager, name)).parameters) == parameters


def tensors() -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    made = {
        str(dtype): torch.randn(3, 5, generator=dice).mul(50).to(dtype)
        for name in sorted(set(dir(torch)))
        if isinstance(dtype := getattr(torch, name), torch.dtype) and _has_values(dtype)
    }
    base = torch.randn(4, 6, generator=dice)
    return {
        **made,
        "scalar": torch.tensor(7),
        "bfloat16 scalar": torch.tensor(0.1).bfloat16(),
        "empty": torch.empty(0),
        "empty bfloat16": torch.empty(2, 0, 3, dtype=torch.bfloat16),
        "strided": base[::2, 1:4],
        "transposed": base.T,
        "conjugated": torch.view_as_complex(base.reshape(4, 3, 2)).conj(),
        "parameter": torch.nn.Parameter(base.clone()),
        "large": torch.randn(700, 1000, generator=dice),
        "nan": torch.tensor([float("nan"), float("-inf"), -0.0]),
    }


def _has_values(dtype: torch.dtype) -> bool:
    """Whether torch can make numbers of this type; bits and quantized ones are no numbers."""
    try:
        torch.zeros(2).to(dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def bits(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(dense.view(torch.uint8).tolist()) if dense.numel() else b""


def assert_same(got: Any, put: torch.Tensor) -> None:
    assert type(got) is torch.Tensor and not got.requires_grad
    assert got.dtype is put.dtype and got.shape == put.shape
    assert bits(got) == bits(put)


def test_tensors_of_every_dtype_come_back_bit_for_bit_and_can_be_written(tmp_path: Path) -> None:
    put = tensors()
    assert {"torch.bfloat16", "torch.float8_e4m3fn", "torch.int64", "torch.bool", "torch.complex64"} <= set(
        put
    )
    KeepstepStorageClient({"store": tmp_path}).put(list(put), list(put.values()))
    for name, got in zip(put, KeepstepStorageClient({"store": tmp_path}).get_all(list(put)), strict=True):
        assert_same(got, put[name])
        got.zero_()


def test_bfloat16_comes_back_where_numpy_has_no_such_type(tmp_path: Path) -> None:
    KeepstepStorageClient({"store": tmp_path}).put(["k"], [torch.arange(5).bfloat16()])
    read = """
        import sys
        sys.modules["ml_dtypes"] = None
        from keepstep.adapters.transfer_queue import KeepstepStorageClient
        (got,) = KeepstepStorageClient({"store": sys.argv[1]}).get(["k"])
        print(got.dtype, got.tolist())
    """
    assert run(read, tmp_path).strip() == "torch.bfloat16 [0.0, 1.0, 2.0, 3.0, 4.0]"


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_keep_their_layout(tmp_path: Path, layout: torch.layout) -> None:
    parts = [torch.randn(length, 3).bfloat16() for length in (2, 5, 1)]
    nested = torch.nested.as_nested_tensor(parts, layout=layout)
    KeepstepStorageClient({"store": tmp_path}).put(["k"], [{"inside": [nested]}])
    (got,) = KeepstepStorageClient({"store": tmp_path}).get_all(["k"])
    (got,) = got["inside"]
    assert got.is_nested and got.layout is layout
    for mine, part in zip(got.unbind(), parts, strict=True):
        assert_same(mine, part)


def test_what_its_own_backends_pickle_comes_back_too(tmp_path: Path) -> None:
    """Wrapped values, tensor dicts, images, arrays of objects with tensors in them."""
    import numpy as np
    from PIL import Image

    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    objects = np.array([{"a": torch.ones(2)}, None], dtype=object)
    several = TensorDict({"x": torch.ones(2, 3), "deep": {"y": torch.zeros(2)}}, batch_size=[2])
    keys = ["wrapped", "several", "image", "objects"]
    KeepstepStorageClient({"store": tmp_path}).put(keys, [NonTensorData("text"), several, image, objects])
    text, dict_of, seen, array = KeepstepStorageClient({"store": tmp_path}).get_all(keys)
    assert text == "text" and array[1] is None
    assert_same(array[0]["a"], torch.ones(2))
    assert dict_of.batch_size == several.batch_size and (dict_of == several).all()
    assert seen.mode == "RGB" and seen.tobytes() == image.tobytes()


@pytest.mark.parametrize(
    "value", [torch.eye(3).to_sparse(), torch.float32, lambda: 0], ids=["sparse", "dtype", "function"]
)
def test_what_would_need_pickling_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="'k'"):
        KeepstepStorageClient({"store": tmp_path}).put(["k"], [value])


# They look into files that only the backend in memory writes.
ABOUT_SIMPLE_STORAGE = [
    "e2e/test_checkpoint_e2e.py::TestCheckpointRoundtrip::test_tensor_fields",
    "e2e/test_checkpoint_e2e.py::TestIncludeStorageFalse::test_storage_saved_is_true",
    "e2e/test_checkpoint_e2e.py::TestCheckpointErrors::test_load_raises_on_storage_unit_count_mismatch",
]
# They need a GPU.
ABOUT_GPUS = [
    "e2e/test_e2e_lifecycle_consistency.py::test_gdr_gpu_tensor_roundtrip",
    "e2e/test_e2e_lifecycle_consistency.py::test_gdr_cpu_tensor_roundtrip",
]
# It is about a manager that was not told its client; ours knows.
ABOUT_THE_BASE = ["test_kv_storage_manager.py::test_close_is_quiet_when_config_is_rejected_before_super_init"]


@pytest.mark.parametrize(
    ("name", "files", "left_out"),
    [
        ("manager", ["test_kv_storage_manager.py"], ABOUT_THE_BASE),
        ("key-value", ["e2e/test_kv_interface_e2e.py"], []),
        ("lifecycle", ["e2e/test_e2e_lifecycle_consistency.py"], ABOUT_GPUS),
        ("checkpoint", ["e2e/test_checkpoint_e2e.py"], ABOUT_SIMPLE_STORAGE),
    ],
)
def test_its_own_tests_pass_with_our_backend(
    tmp_path: Path, suite: Suite, name: str, files: list[str], left_out: list[str]
) -> None:
    report, store = tmp_path / "report.xml", tmp_path / "store"
    told = {**environment(), "KEEPSTEP_TQ_STORE": str(store), "TQ_TEST_BACKEND": "Keepstep"}
    told["PYTHONPATH"] = os.pathsep.join([str(HERE), told["PYTHONPATH"]])
    asked = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "keepstep_backend",
        f"--junitxml={report}",
        f"--rootdir={ITS_TESTS}",
    ]
    without = [f"--deselect={test}" for test in left_out]
    tests = [str(ITS_TESTS / file) for file in files]
    command = [sys.executable, "-m", "pytest", *asked, *without, *tests]
    done = subprocess.run(command, env=told, cwd=tmp_path, text=True, capture_output=True, timeout=900)
    counts = ElementTree.parse(report).getroot().find("testsuite")
    assert counts is not None, done.stdout
    total = int(counts.get("tests", 0))
    wrong = sum(int(counts.get(kind, 0)) for kind in ("failures", "errors", "skipped"))
    suite(name, total - wrong, total)
    assert done.returncode == 0 and wrong == 0 and total > 0, done.stdout[-4000:]
    assert f"{len(left_out)} deselected" in done.stdout or not left_out, "a test that was left out is no more"
    assert name == "manager" or any(store.rglob("*.seg")), "nothing came to our backend"


def test_the_guide_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its blocks run here, also those that need TransferQueue."""
    monkeypatch.chdir(tmp_path)
    page = (HERE.parents[2] / "docs" / "guides" / "transfer_queue.md").read_text()
    assert page.count("<!-- not run: needs TransferQueue") == 3
    assert run_page(re.sub("<!-- not run: .*-->\\n", "", page), "transfer_queue.md", tmp_path) == 3


FLOW = HERE / "tq_flow.py"
STEPS = 5


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kills a process and all that it started, so that nobody of them can tidy up."""
    root = psutil.Process(process.pid)
    doomed = [root, *root.children(recursive=True)]
    for one in doomed:
        try:
            one.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass
    process.wait()
    psutil.wait_procs(doomed, timeout=30)


def run_flow(folder: Path, until: str | None = None) -> list[str]:
    """Runs the flow to its end, or kills it and its cluster when it has said a line. What it said."""
    with (folder / "errors.txt").open("a") as errors:
        process = start(FLOW, folder, STEPS, stderr=errors)
    assert process.stdout is not None
    said = list[str]()
    try:
        for line in process.stdout:
            said.append(line.strip())
            if line.strip() == until:
                kill_all(process)
                return said
        assert process.wait(60) == 0 and until is None, (folder / "errors.txt").read_text()[-4000:]
        return said
    finally:
        if process.poll() is None:
            kill_all(process)
        process.stdout.close()


def test_a_flow_killed_in_mid_rollout_and_run_again_ends_with_the_same_data(tmp_path: Path) -> None:
    """Killed after a put, after a clear whose step is not in a checkpoint, and between: each time all of its processes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = run_flow(whole)
    assert expected[0] == "from 0"
    for until, begins in (("put 1", "from 0"), ("cleared 0", "from 1"), ("scored 3", "from 2")):
        assert run_flow(killed, until)[0] == begins
    said = run_flow(killed)
    assert said[0] == "from 3"
    assert json.loads(said[-1]) == json.loads(expected[-1])
    assert len(json.loads(said[-1])["left"]) == 16
