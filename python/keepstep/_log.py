"""The `keepstep` logger."""

from __future__ import annotations

import logging
from collections.abc import Sequence

logger = logging.getLogger("keepstep")

_SHOWN_MAX = 20
"""So much that is wrong is told one by one: more would hide what else a log says."""


def warn_of_troubles(troubles: Sequence[str]) -> None:
    """Says in the log what cannot be read, or rests on what is not there; the rest was read all the same."""
    for trouble in troubles[:_SHOWN_MAX]:
        logger.warning("damaged: %s", trouble)
    if len(troubles) > _SHOWN_MAX:
        logger.warning("and %d more are damaged: `keepstep verify` finds all", len(troubles) - _SHOWN_MAX)
