"""What do tests of index files share? Comparing arrays in all that they are, and changing what lies in an index."""

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


def same_value(found: Any, wanted: Any) -> None:
    """Compare values of attributes or parameters: type, dtype, shape and content, NaN equal to itself."""
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same_value(one, other)
    elif isinstance(wanted, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted or (found != found and wanted != wanted)


def same_attrs(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Compare attributes, their order too."""
    assert list(found) == list(wanted)
    for name in wanted:
        same_value(found[name], wanted[name])


def same_array(found: aa.MasterArray, wanted: aa.MasterArray, renamed: Renamed = _same_uri) -> None:
    """Compare all parameters, partitions and coordinates of two arrays; ``renamed``: what a file of ``wanted`` is now."""
    for name in ("name", "dtype", "units", "calendar", "dimensions", "shape", "directions", "pmdimensions", "pmshape"):
        assert getattr(found, name) == getattr(wanted, name), name
    same_value(found.fill_value, wanted.fill_value)
    same_attrs(found.attrs, wanted.attrs)
    same_attrs(found.file_attrs, wanted.file_attrs)
    same_partitions(found, wanted, renamed)
    assert (found._known is None) == (wanted._known is None)
    if wanted._known is not None and found._known is not None:
        for one, other in zip(found._known, wanted._known, strict=True):
            same_value(one, other)
    assert list(found.coords) == list(wanted.coords)
    for name in wanted.coords:
        same_array(found.coords[name], wanted.coords[name], renamed)


def same_partitions(found: aa.MasterArray, wanted: aa.MasterArray, renamed: Renamed = _same_uri) -> None:
    """Compare the partitions of two arrays one by one, with the stamps of their files."""
    for one, other in zip(found.partitions.edges, wanted.partitions.edges, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(found.partitions) == len(wanted.partitions)
    for one, other in zip(found.partitions, wanted.partitions, strict=True):
        for name in ("index", "location", "pdimensions", "pdirections", "punits", "pcalendar", "virtual"):
            assert getattr(one, name) == getattr(other, name), name
        same_value(one.part, other.part)
        assert (one.data is None) == (other.data is None)
        if one.data is None or other.data is None:
            continue
        assert one.data.template == other.data.template
        assert one.data.uri == (other.data.uri and renamed(other.data.uri))
        same_value(one.data.source, other.data.source)
    for row, ref in zip(found._matrix.refs.tolist(), wanted._matrix.refs.tolist(), strict=True):
        # Arrays that were just opened leave the stamps to the structures.
        stamps = [a._matrix.references.stamp_of(r) for a, r in ((found, row), (wanted, ref)) if r >= 0]
        assert None in stamps or len(set(stamps)) <= 1


def same_values(found: aa.MasterArray, wanted: aa.MasterArray) -> None:
    """Compare what two arrays read, masks and coordinates too."""
    one, other = found.read(masked=True), wanted.read(masked=True)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
    np.testing.assert_array_equal(np.ma.getdata(one), np.ma.getdata(other))
    for name in wanted.coords:
        same_values(found.coords[name], wanted.coords[name])


def same(found: aa.Aggregation, wanted: aa.Aggregation, values: bool = True, renamed: Renamed = _same_uri) -> None:
    """Compare two aggregations: arrays in their order, refusals, what was skipped, duplicates, and values."""
    assert found.names == wanted.names and len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        same_array(one, other, renamed)
        if values:
            same_values(one, other)
    if renamed is _same_uri:
        assert set(found.refusals) == set(wanted.refusals) and len(found.refusals) == len(wanted.refusals)
        assert found.skipped == wanted.skipped
        assert set(found.duplicates) == set(wanted.duplicates)


def kept(agg: aa.Aggregation, path: str | os.PathLike[str], **how: Any) -> aa.Aggregation:
    """Save an aggregation and open the index."""
    agg.save(path, **how)
    return aa.open(path)


# Changing what lies in an index


@contextmanager
def group(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Give the group of an index that is aggarray's own, to be changed."""
    with h5py.File(path, "r+") as file:
        yield file["aggarray"]


def document(path: str | os.PathLike[str], name: str = "document") -> Any:
    """Return one of the JSON documents of an index."""
    with h5py.File(path, "r") as file:
        return json.loads(file["aggarray"][name][...].tobytes().decode("utf-8", "surrogateescape"))


def put(path: str | os.PathLike[str], name: str, content: Any) -> None:
    """Replace a variable of the group: text or a JSON document as bytes, an array as it is."""
    if not isinstance(content, np.ndarray):
        text = content if isinstance(content, str) else json.dumps(content)
        content = np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
    with group(path) as own:
        del own[name]
        own.create_dataset(name, data=content)


def changed(path: str | os.PathLike[str], change: Callable[[Any], Any], name: str = "document") -> None:
    """Rewrite a JSON document of an index; ``change`` alters it in place, or returns what replaces it."""
    found = document(path, name)
    result = change(found)
    put(path, name, found if result is None else result)


def files_below(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones too."""
    return sorted(os.listdir(folder))
