"""A property that is computed once for each object, without a lock.

Before Python 3.12, `functools.cached_property` holds one lock for all objects of a class while it computes: two views would wait
for each other's disk, and a forked child would wait for ever for a thread of its parent.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """Threads that ask at once may each compute it; the first result is kept."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # From now on the value in `__dict__` is found first, since this descriptor has no __set__.
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


__all__ = ["cached_property"]
