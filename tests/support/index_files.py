"""Comparison of arrays and aggregations, and changes of index files."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import aggarray as aa

Renamed = Callable[[str], str]


def _same_uri(uri: str) -> str:
    return uri


def same_value(actual: Any, expected: Any) -> None:
    """Compare values of attributes or parameters: type, dtype, shape and content, NaN equal to itself."""
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            same_value(a, b)
    elif isinstance(expected, np.ndarray | np.generic):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(actual, expected)
    else:
        assert actual == expected or (actual != actual and expected != expected)


def same_attrs(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare attributes, their order too."""
    assert list(actual) == list(expected)
    for name in expected:
        same_value(actual[name], expected[name])


def same_array(actual: aa.MasterArray, expected: aa.MasterArray, renamed: Renamed = _same_uri) -> None:
    """Compare the parameters, partitions and coordinates of two arrays.

    ``renamed``: returns the new path of a file of ``expected``.
    """
    for name in ("name", "dtype", "units", "calendar", "dimensions", "shape", "directions", "pmdimensions", "pmshape"):
        assert getattr(actual, name) == getattr(expected, name), name
    same_value(actual.fill_value, expected.fill_value)
    same_attrs(actual.attrs, expected.attrs)
    same_attrs(actual.file_attrs, expected.file_attrs)
    same_partitions(actual, expected, renamed)
    assert (actual._known is None) == (expected._known is None)
    if expected._known is not None and actual._known is not None:
        for a, b in zip(actual._known, expected._known, strict=True):
            same_value(a, b)
    assert list(actual.coords) == list(expected.coords)
    for name in expected.coords:
        same_array(actual.coords[name], expected.coords[name], renamed)


def same_partitions(actual: aa.MasterArray, expected: aa.MasterArray, renamed: Renamed = _same_uri) -> None:
    """Compare the partitions of two arrays, and the stamps of their files."""
    for a, b in zip(actual.partitions.edges, expected.partitions.edges, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(actual.partitions) == len(expected.partitions)
    for a, b in zip(actual.partitions, expected.partitions, strict=True):
        for name in ("index", "location", "pdimensions", "pdirections", "punits", "pcalendar", "virtual"):
            assert getattr(a, name) == getattr(b, name), name
        same_value(a.part, b.part)
        assert (a.data is None) == (b.data is None)
        if a.data is None or b.data is None:
            continue
        assert a.data.template == b.data.template
        assert a.data.uri == (b.data.uri and renamed(b.data.uri))
        same_value(a.data.source, b.data.source)
    for row, ref in zip(actual._matrix.refs.tolist(), expected._matrix.refs.tolist(), strict=True):
        # Newly opened arrays have no stamps; their structures have them.
        stamps = [a._matrix.references.stamp_of(r) for a, r in ((actual, row), (expected, ref)) if r >= 0]
        assert None in stamps or len(set(stamps)) <= 1


def same_values(actual: aa.MasterArray, expected: aa.MasterArray) -> None:
    """Compare the values, masks and coordinates of two arrays."""
    a, b = actual.read(masked=True), expected.read(masked=True)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    np.testing.assert_array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
    np.testing.assert_array_equal(np.ma.getdata(a), np.ma.getdata(b))
    for name in expected.coords:
        same_values(actual.coords[name], expected.coords[name])


def same(actual: aa.Aggregation, expected: aa.Aggregation, values: bool = True, renamed: Renamed = _same_uri) -> None:
    """Compare two aggregations: arrays in order, refusals, skipped files, duplicates, values."""
    assert actual.names == expected.names and len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        same_array(a, b, renamed)
        if values:
            same_values(a, b)
    if renamed is _same_uri:
        assert set(actual.refusals) == set(expected.refusals) and len(actual.refusals) == len(expected.refusals)
        assert actual.skipped == expected.skipped
        assert set(actual.duplicates) == set(expected.duplicates)


def save_and_open(agg: aa.Aggregation, path: str | os.PathLike[str], **options: Any) -> aa.Aggregation:
    """Save an aggregation and open the index."""
    agg.save(path, **options)
    return aa.open(path)


# Changes of an index


@contextmanager
def group(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Give the writable group of an index for the length of a block."""
    with h5py.File(path, "r+") as file:
        yield file["aggarray"]


def document(path: str | os.PathLike[str], name: str = "document") -> Any:
    """Return a JSON document of an index."""
    with h5py.File(path, "r") as file:
        return json.loads(file["aggarray"][name][...].tobytes().decode("utf-8", "surrogateescape"))


def put(path: str | os.PathLike[str], name: str, content: Any) -> None:
    """Replace a variable of the group: text or JSON as bytes, an array unchanged."""
    if not isinstance(content, np.ndarray):
        text = content if isinstance(content, str) else json.dumps(content)
        content = np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
    with group(path) as own:
        del own[name]
        own.create_dataset(name, data=content)


def changed(path: str | os.PathLike[str], change: Callable[[Any], Any], name: str = "document") -> None:
    """Rewrite a JSON document of an index.

    ``change`` alters it in place, or returns its replacement.
    """
    content = document(path, name)
    result = change(content)
    put(path, name, content if result is None else result)


def files_below(folder: Path) -> list[str]:
    """Return the names in a folder, hidden files included."""
    return sorted(os.listdir(folder))
