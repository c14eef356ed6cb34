"""What the tests of values share: there and back, with and without a store between."""

from __future__ import annotations

import collections
import datetime
import math
import pathlib

import keepstep._core as core
import numpy
from hypothesis import strategies as st


def roundtrip(value, path="value", **options):
    return core._roundtrip(value, core.Context(**options), path)


def shown(value, **options):
    return core._shown(value, core.Context(**options))


def alike(a, b) -> bool:
    """Equal, of the same types all the way down, NaN equal to itself, -0.0 different from 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, complex):
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return alike(list(a.items()), list(b.items()))
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (datetime.datetime, datetime.time)):
        return a == b and a.fold == b.fold and a.utcoffset() == b.utcoffset()
    return a == b


class Recording:
    """An episode of a new store; `read()` closes it and gives its steps as another attempt reads them."""

    def __init__(self, where, **options):
        self.where, self.options = str(where / "runs"), options

    def open(self):
        self.context = core.Context(**self.options)
        self.store = core.Store(self.where, level=None, lease_s=30, stall_s=60, context=self.context)
        run = self.store.run("r", config=None, links={}, new=False)
        return run.open("t", 0, 0, {})

    def __enter__(self):
        self.episode = self.open()
        return self.episode

    def __exit__(self, *_):
        self.episode = None
        self.store.close()

    def read(self):
        self.__exit__()
        episode = self.open()
        return [episode.history(index) for index in range(episode.inherited)]


texts = st.text(st.characters(exclude_categories=()), max_size=300)
keys = st.one_of(
    texts,
    st.integers(),
    st.booleans(),
    st.none(),
    st.binary(max_size=8),
    st.floats(allow_nan=False),
    st.tuples(st.integers(), texts),
    st.dates(),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    texts,
    st.binary(max_size=600),
    st.complex_numbers(),
    st.binary().map(bytearray),
    st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc) | st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.sets(st.integers() | texts),
    st.frozensets(st.integers() | st.none()),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
    st.text("abc/.", min_size=1).map(pathlib.Path),
)
plain = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=5)
        | st.dictionaries(texts, inner, max_size=3).map(collections.OrderedDict)
        | st.lists(inner, max_size=3).map(collections.deque)
    ),
    max_leaves=20,
)
