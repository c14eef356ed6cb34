"""A list that records: what is appended is durable when `append` or `extend` returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from ._loops import warn_if_on_loop

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._episode import Episode


class GrowingList(list[Any]):
    """A real list, for loops that grow one and pass it on. It can only grow."""

    __slots__ = ()

    def extend(self, items: Iterable[Any]) -> None:
        """Appends items one by one. All are durable when it returns."""
        for item in items:
            self.append(item)

    def __iadd__(self, items: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(items)
        return self

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "a recorded trajectory can only grow: use append or extend, or work on a copy, list(trajectory)"
        )

    __setitem__ = __delitem__ = __imul__ = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce_ex__(self, protocol: object) -> Any:
        # A copy in another process records nothing.
        return list, (list(self),)

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        from copy import deepcopy

        return [deepcopy(item, memo) for item in self]


class RecordingList(GrowingList):
    """Records what is appended, as items of an episode."""

    __slots__ = ("_episode",)

    def __init__(self, episode: Episode) -> None:
        native = episode._looked_at
        items = (native.history(index) for index in range(native.inherited))
        super().__init__(item["value"] for item in items if "value" in item)
        self._episode = episode

    def append(self, item: Any) -> None:
        """Appends an item. Durable when it returns."""
        warn_if_on_loop("use `await asyncio.to_thread(trajectory.append, item)`")
        # Recorded first: what could not be recorded is not in the list either.
        self._episode._native.item(item)
        super().append(item)
