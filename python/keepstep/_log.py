"""The `keepstep` logger."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

logger: logging.Logger = logging.getLogger("keepstep")
"""What this package has to say beside its exceptions. Give it recorded text through `shown`."""

_SHOWN_MAX = 20
"""So much that is wrong is told one by one: more would hide what else a log says."""

# Controls, and what is not seen or turns the direction of text: as `is_hostile` in crates/keepstep/src/export/json.rs.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def shown(text: str) -> str:
    """Text as a terminal may have it, in one line: what was recorded may be hostile, and a log is read on a terminal."""
    return _HOSTILE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return " " if found[0] == "\n" else found[0].encode("unicode_escape").decode()


def warn_of_troubles(troubles: Sequence[str]) -> None:
    """Says in the log what cannot be read, or rests on what is not there; the rest was read all the same."""
    for trouble in troubles[:_SHOWN_MAX]:
        logger.warning("damaged: %s", shown(trouble))
    if len(troubles) > _SHOWN_MAX:
        logger.warning("and %d more are damaged: `keepstep verify` finds all", len(troubles) - _SHOWN_MAX)
