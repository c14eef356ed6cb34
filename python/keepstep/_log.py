"""The `keepstep` logger."""

import logging

logger = logging.getLogger("keepstep")
