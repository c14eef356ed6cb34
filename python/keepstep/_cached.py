"""A property that is computed once for each object, without a lock.

Before Python 3.12, `functools.cached_property` holds one lock for all objects of a class while it computes: two views would wait
for each other's disk, and a forked child would wait for ever for a thread of its parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """Threads that ask at once may each compute it; what was computed first is kept."""

        def __init__(self, compute: Any) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # Stands before this from now on: it has no __set__.
            return instance.__dict__.setdefault(self._name, self._compute(instance))


__all__ = ["cached_property"]
