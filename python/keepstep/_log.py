"""The `keepstep` logger."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

logger: logging.Logger = logging.getLogger("keepstep")
"""The logger of this package. Pass recorded text through `shown` first."""

_SHOWN_MAX = 20
"""How many problems are logged one by one: more would hide the rest of the log."""

# Control characters, invisible ones, and those that change the direction of text: as `is_hostile` in
# crates/keepstep/src/export/json.rs.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)

_KNOWN = {"\n": " ", "\t": "\\t", "\r": "\\r"}


def counted(number: int, noun: str) -> str:
    """A count with its noun: "1 step", "2 steps"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shown(text: str) -> str:
    """The text in one line, safe on a terminal: recorded text may be hostile, and logs are read on terminals."""
    return _HOSTILE.sub(_escaped, text)


def printable(text: str) -> str:
    """The same over several lines."""
    return "\n".join(map(shown, text.split("\n"))) if _HOSTILE.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    # As the command shows them.
    return _KNOWN.get(found[0]) or f"\\u{{{ord(found[0]):x}}}"


def tell_unheard(unheard: Sequence[tuple[str, str]]) -> None:
    """Logs which episodes lack an entry that could not be written, if the program has not heard of it otherwise."""
    for what, why in unheard:
        logger.error("%s lacks a step or another entry: %s", shown(what), shown(why))


def warn_of_troubles(troubles: Sequence[str]) -> None:
    """Logs what could not be read, or depends on something that is missing. The rest was read."""
    for trouble in troubles[:_SHOWN_MAX]:
        logger.warning("damaged: %s", shown(trouble))
    if len(troubles) > _SHOWN_MAX:
        logger.warning("and %d more are damaged: `keepstep verify` lists all", len(troubles) - _SHOWN_MAX)
