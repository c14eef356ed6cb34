#!/usr/bin/env python
"""Writes docs/reference.md from the package's own stub, as plain Markdown that can be read unbuilt.

Without an argument it says whether the page is what the stub says; `--write` makes it so.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python" / "keepstep" / "__init__.pyi"
ERRORS = ROOT / "python" / "keepstep" / "errors.py"
ADAPTING = ROOT / "python" / "keepstep" / "adapting.py"
PAGE = ROOT / "docs" / "reference.md"

# Where a name stands on the page. A public name that is in no part is an error.
PARTS = {
    "Open and record": ["open", "record", "current", "register"],
    "Stores and runs": ["Store", "Run", "Job", "Jobs", "Progress", "GivenUp", "Opts", "Level"],
    "Episodes": ["Episode", "Turn", "Said", "Result", "Both", "Tokens", "Receipt", "Why", "Ending", "Scope"],
    "Groups and streams": ["Group", "Sealing", "Stream"],
    "Reading": ["View", "Step", "Call", "GroupView", "Table"],
    "Values that stand for themselves": ["Media", "Array", "Repr", "RecordedAsRepr", "Lost"],
}

# The same of `keepstep.adapting`, in the order in which an adapter comes to need them.
FOR_ADAPTERS = [
    *("SharedStore", "Where", "place_of", "put_waiting", "await_durable", "samples_of"),
    *(
        "FINAL",
        "ENDING",
        "why_of",
        "why_left",
        "ending_by",
        "text_of",
        "message_of",
        "check_same",
        "diverged",
    ),
    *("Caller", "BlockingCaller", "AsyncCaller", "run_blocking", "in_thread", "is_on_loop"),
    *("logger", "shown", "warn_caller", "GrowingList", "int32_bytes", "float32_bytes"),
    *("StreamReader", "StreamNews"),
]

HEAD = """\
# Reference

Made from `python/keepstep/__init__.pyi`, which type checkers read too, and `adapting.py` beside it, by `tools/reference.py`. `keepstep.wrappers` has a class for each kind of
environment; `record` picks the right one. What stands in several places here has one home: the guides say what it is for.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """The whole page."""
    tree = ast.parse(STUB.read_text())
    names = {name: (node, doc) for name, node, doc in documented(tree.body)}
    errors = ast.parse(ERRORS.read_text())
    out = [HEAD]
    for part, members in PARTS.items():
        out.append(f"## {part}\n")
        for name in members:
            node, doc = names[name]
            out.extend(entry(name, node, doc))
    out.append("## Errors\n")
    out.append(
        "By what you can do next: retry, reopen, fix the input, stop, restore data. All are in `keepstep` too.\n"
    )
    out.append("| raised | is also | |\n|---|---|---|")
    for name, node, doc in documented(errors.body):
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
            out.append(f"| `{name}` | {bases} | {' '.join(doc.split())} |")
    out.append("\n## For adapters: `keepstep.adapting`\n")
    out.append(
        "What an adapter needs beyond the package itself: see [the guide](guides/your-own-adapter.md).\n"
    )
    offered = {name: (node, doc) for name, node, doc in offered_by(ADAPTING)}
    for name in FOR_ADAPTERS:
        out.extend(entry(name, *offered[name]))
    return "\n".join(out).rstrip() + "\n"


def offered_by(module: Path) -> Iterator[tuple[str, ast.stmt, str]]:
    """What a module has to offer: its own names, and those that it takes from others of the package."""
    tree = ast.parse(module.read_text())
    yield from documented(tree.body)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            path = module.parent / f"{node.module.replace('.', '/')}.py"
            # What is native says what it is in its stub.
            source = path if path.exists() else path.with_suffix(".pyi")
            if source.exists():
                taken = {alias.name for alias in node.names}
                yield from (it for it in documented(ast.parse(source.read_text()).body) if it[0] in taken)


def documented(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt, str]]:
    """What a module or a class says of its public names: each with its docstring, which stands behind what is annotated."""
    for node, behind in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, Function | ast.ClassDef):
            name, doc = node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, doc = node.target.id, text_of(behind)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, doc = node.targets[0].id, text_of(behind)
        else:
            continue
        if doc and (not name.startswith("_") or name in ("__await__", "__aiter__")):
            yield name, node, doc


def text_of(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(ast.Constant(str() as text)):
            return inspect.cleandoc(text)
    return ""


def entry(name: str, node: ast.stmt, doc: str) -> list[str]:
    """A name with all that belongs to it."""
    if not isinstance(node, ast.ClassDef):
        return [f"### `{name}`\n", code(signature(node)), told(doc)]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    out = [f"### `{name}`\n", told(doc)]
    if bases:
        out.insert(1, f"A `{bases}`.\n")
    fields, methods = [], []
    for member, inner, said in documented(node.body):
        is_method = isinstance(inner, Function) and not is_property(inner)
        (methods if is_method else fields).append((member, inner, said))
    if fields:
        out.append("| | | |\n|---|---|---|")
        out.extend(f"| `{member}` | {type_of(inner)} | {cell(said)} |" for member, inner, said in fields)
        out.append("")
    for member, inner, said in methods:
        out.extend([f"#### `{name}.{member}`\n", code(signature(inner)), told(said)])
    return out


def is_property(node: ast.stmt) -> bool:
    return isinstance(node, Function) and any(ast.unparse(it) == "property" for it in node.decorator_list)


def type_of(node: ast.stmt) -> str:
    annotation = node.returns if isinstance(node, Function) else getattr(node, "annotation", None)
    text = "" if annotation is None else ast.unparse(annotation).replace("|", "\\|")
    return f"`{text}`" if text else ""


def cell(doc: str) -> str:
    return " ".join(doc.split()).replace("|", "\\|")


def signature(node: ast.stmt) -> str:
    """How it is called; in lines, where one would be too long."""
    if isinstance(node, ast.AnnAssign):
        # How a constant is made is nobody's business.
        return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    if not isinstance(node, Function):
        return ast.unparse(node)
    arguments = parameters(node.args)
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{prefix}{node.name}({', '.join(arguments)}){gives}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {argument},\n" for argument in arguments)
    return f"{prefix}{node.name}(\n{inner}){gives}"


def parameters(of: ast.arguments) -> list[str]:
    first = [*of.posonlyargs, *of.args]
    defaults = [None] * (len(first) - len(of.defaults)) + list(of.defaults)
    out = [parameter(it, default) for it, default in zip(first, defaults, strict=True)]
    if of.vararg:
        out.append("*" + ast.unparse(of.vararg))
    elif of.kwonlyargs:
        out.append("*")
    out.extend(parameter(it, default) for it, default in zip(of.kwonlyargs, of.kw_defaults, strict=True))
    if of.kwarg:
        out.append("**" + ast.unparse(of.kwarg))
    return [it for it in out if it not in ("self", "cls")]


def parameter(it: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(it)
    return text if default is None else f"{text} = {ast.unparse(default)}"


def code(text: str) -> str:
    # Not `python`: the examples of a page are run by its test, and these are none.
    return f"```py\n{text}\n```\n"


def told(doc: str) -> str:
    """A docstring, with its parameters as a list."""
    text, _, named = doc.partition("\nParameters:\n")
    out = text.strip() + "\n"
    if named:
        lines: list[str] = []
        for line in inspect.cleandoc(named).splitlines():
            if line.startswith(" "):
                lines[-1] += " " + line.strip()
            else:
                name, _, rest = line.partition(":")
                lines.append(f"- `{name}`: {rest.strip()}")
        out += "\n" + "\n".join(lines) + "\n"
    return out


def main() -> int:
    made = page()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    if made == PAGE.read_text():
        return 0
    print(
        "docs/reference.md is not what the stub says: run `python tools/reference.py --write`",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
