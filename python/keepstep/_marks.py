"""Classes of keepstep among the values that are read back: media, reprs, lost values, raw arrays."""

from __future__ import annotations

import base64
from typing import Any

_DISPLAYED = ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "video/mp4")


class RecordedAsRepr(UserWarning):
    """Objects of this class cannot be recorded as data, so their `repr` was recorded. `keepstep.register` changes that."""


class _Frozen:
    """Compared by its content, and immutable."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts()


class Media(_Frozen):
    """An image, a sound, …: its media type and its bytes. PIL images are recorded as this."""

    __slots__ = ("data", "kind")
    kind: str
    data: bytes

    def __init__(self, kind: str, data: bytes) -> None:
        object.__setattr__(self, "kind", str(kind))
        object.__setattr__(self, "data", bytes(data))

    def _parts(self) -> tuple[Any, ...]:
        return self.kind, self.data

    def image(self) -> Any:
        """The PIL image (needs pillow)."""
        import io

        from PIL import Image

        return Image.open(io.BytesIO(self.data))

    def _repr_html_(self) -> str | None:
        if self.kind not in _DISPLAYED:
            return None
        source = f"data:{self.kind};base64,{base64.b64encode(self.data).decode()}"
        tag = self.kind.partition("/")[0]
        return f'<img src="{source}">' if tag == "image" else f'<{tag} controls src="{source}"></{tag}>'

    def __repr__(self) -> str:
        return f"<Media {self.kind}, {len(self.data)} bytes>"


class Repr(str):
    """The `repr` of an object that could not be recorded as data; `type` is the name of its class."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, type: str, text: str) -> Repr:
        made = super().__new__(cls, text)
        object.__setattr__(made, "type", type)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Repr, (self.type, str(self))

    def __repr__(self) -> str:
        return f"<Repr of {self.type}: {str(self)!s}>"


class Lost(_Frozen):
    """Stands for a value whose bytes are damaged; `hash` is the hash of the value."""

    __slots__ = ("hash",)
    hash: bytes

    def __init__(self, hash: bytes) -> None:
        object.__setattr__(self, "hash", bytes(hash))

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<Lost {self.hash.hex()}>"


class Array(_Frozen):
    """An array whose elements have no type in the installed libraries: numpy is missing, or `ml_dtypes` for bfloat16
    and float8.

    `data` has the elements in C order, little-endian.
    """

    __slots__ = ("data", "dtype", "shape")
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
        object.__setattr__(self, "dtype", str(dtype))
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "data", bytes(data))

    def _parts(self) -> tuple[Any, ...]:
        return self.dtype, self.shape, self.data

    def __repr__(self) -> str:
        return f"<Array {self.dtype}{list(self.shape)}>"
