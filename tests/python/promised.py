"""The sentences of a page, so that each that promises something about resuming can be held against `tests/promises.toml`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Sentences with these words are about resuming, unless the table says that they only explain.
WORDS = re.compile(
    r"\b(?:resum\w*|go(?:es|ne|ing)? on|again|anew|kill\w*|crash\w*|inherit\w*|retr(?:y|ies)|attempts?|interrupted"
    r"|pending|adopt\w*|fenced|busy|restor\w*|restart\w*|replay\w*|dies|died|dead|take[ns]? over|given up)\b",
    re.I,
)
# Where a sentence ends, also behind a quotation mark, a bracket or bold type.
END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')*])|(?<=[.!?]\*\*))\s+(?=[A-Z`\"*(\[])")


def plain(text: str) -> str:
    """Text with its spaces as one each."""
    return " ".join(text.split())


def blocks(page: str) -> Iterator[str]:
    """Paragraphs, items and rows of a page, without code, comments and headings."""
    page = re.sub(r"^([ \t]*)```.*?^\1```[ \t]*$", "", page, flags=re.S | re.M)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.S)
    block: list[str] = []
    for line in [*map(str.strip, page.splitlines()), ""]:
        if not line or re.match(r"[#|>]|- |\d+\. ", line):
            if block:
                yield " ".join(block)
            block = []
        if line.startswith("|"):
            if not re.fullmatch(r"[|:\- ]+", line):
                yield line
        elif line and not line.startswith("#"):
            block.append(re.sub(r"^(?:- |> |\d+\. )", "", line))


def sentences(page: str) -> list[str]:
    """The sentences of a page; a row of a table is one."""
    found = []
    for block in blocks(page):
        found += map(plain, [block] if block.startswith("|") else END.split(block))
    return found


def docstrings(source: str) -> str:
    """The docstrings of a stub or a module as a page: each a paragraph, each parameter an item."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                found.append(re.sub(r"^ +(\*{0,2}\w+: )", r"- \1", text, flags=re.M))
    return "\n\n".join(found)


def page_of(path: str) -> str:
    """What is to be read of a file."""
    text = (ROOT / path).read_text()
    return docstrings(text) if path.endswith((".py", ".pyi")) else text


def places(path: str, words: str) -> int:
    """How many sentences of a page or of docstrings begin with these words; how often other files have them."""
    if path.endswith(".rs"):
        return plain((ROOT / path).read_text()).count(plain(words))
    return sum(sentence.startswith(plain(words)) for sentence in sentences(page_of(path)))


def unlisted(page: str, listed: list[str]) -> list[str]:
    """The sentences about resuming that no entry begins."""
    about = [sentence for sentence in sentences(page) if WORDS.search(sentence)]
    return [sentence for sentence in about if not any(sentence.startswith(plain(it)) for it in listed)]


def missing(test: str) -> str | None:
    """What is wrong with the name of a test, if something is."""
    file, _, name = test.partition("::")
    if not name:
        return f"{test}: names a file only"
    path = next((it for it in (ROOT / file, ROOT / "tests/python" / file) if it.is_file()), None)
    if path is None:
        return f"{test}: there is no such file"
    if not re.search(rf"^\s*(?:async )?(?:def|fn) {re.escape(name)}\b", path.read_text(), re.M):
        return f"{test}: there is no such test"
    return None
