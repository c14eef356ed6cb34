"""The adapters on stand-ins of their frameworks, whose likeness `make test-outside` checks."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: where the real framework is installed, it is the one that is tested.
sys.path.append(str(Path(__file__).parent.parent.parent / "standins"))
