"""The stubs are what people and type checkers read: they say the same as the code, about every public name."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import keepstep

PACKAGE = Path(keepstep.__file__).parent
ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    """A script of the tools folder, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = tool("reference")


def documented(tree: ast.Module | ast.ClassDef, prefix: str = "") -> dict[str, str | None]:
    """The docstring of each public function, class, method and attribute of a stub."""
    found: dict[str, str | None] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name, doc = node.name, ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name, doc = ast.unparse(target), text_of(after)
        else:
            continue
        if name.startswith("_"):
            continue
        found[prefix + name] = doc
        if isinstance(node, ast.ClassDef):
            found |= documented(node, f"{prefix}{name}.")
    return found


def text_of(node: ast.stmt | None) -> str | None:
    """The text that stands alone in a line, as a docstring of what is above it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return None


STUB = documented(ast.parse((PACKAGE / "__init__.pyi").read_text()))


def at_runtime(name: str) -> Any:
    found: Any = keepstep
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    return found


def test_every_public_name_has_a_docstring() -> None:
    assert not [name for name, doc in STUB.items() if not doc]


def test_the_stub_says_what_help_says() -> None:
    """What an editor shows and what `help()` shows is the same text."""
    wrong = []
    for name, doc in STUB.items():
        if is_field(name):
            continue
        found = at_runtime(name)
        if inspect.isroutine(found) or isinstance(found, type | property):
            said = inspect.cleandoc(found.__doc__ or "")
            if said != doc:
                wrong.append(f"{name}: the stub says {doc!r}, help() says {said!r}")
    assert not wrong, "\n".join(wrong)


def is_field(name: str) -> bool:
    """True for what is only annotated, in a class: Python has no docstrings for these."""
    owner, _, field = name.partition(".")
    return bool(field) and field in inspect.get_annotations(at_runtime(owner))


def test_every_public_name_is_in_the_reference() -> None:
    placed = [name for part in reference.PARTS.values() for name in part]
    errors = {name for name in dir(keepstep.errors) if name in keepstep.__all__}
    assert sorted(placed) == sorted(set(keepstep.__all__) - errors - {"__version__"})


def test_the_fields_of_a_step_are_those_of_the_engine() -> None:
    """One table says which fields there are, and the part of a step that each belongs to (`format/step_fields`)."""
    from keepstep import _core

    def keywords(name: str) -> list[str]:
        return [it.partition(".")[2] for it in STUB if it.startswith(f"{name}.")]

    assert set(keywords("Said")) == set(_core._step_fields("said")) == set(keepstep.Said.__annotations__)
    assert (
        set(keywords("Result")) == set(_core._step_fields("result")) == set(keepstep.Result.__annotations__)
    )
    assert set(inspect.signature(keepstep.Episode.first).parameters) - {"self"} == set(
        _core._step_fields("first")
    )
    own = {"index", "kind", "time", "damaged", "failed"}
    assert set(keywords("Step")) - own == set(_core._step_fields("all"))
    assert {it.name for it in dataclasses.fields(keepstep.Step)} - own == set(_core._step_fields("all"))


def test_the_reference_is_what_the_stub_says() -> None:
    """It is read unbuilt, so it stands in the tree: `python tools/reference.py --write` makes it anew."""
    assert (ROOT / "docs" / "reference.md").read_text() == reference.page()


def test_an_undocumented_name_is_found() -> None:
    stub = ast.parse(
        'class A:\n    "An A."\n    x: int\n    y: int\n    "A y."\n    def f(self) -> None: ...\n'
    )
    assert documented(stub) == {"A": "An A.", "A.x": None, "A.y": "A y.", "A.f": None}
