"""Pickles of earlier releases in ``fixtures/pickles``, and their root folder."""

import pickletools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

import aggarray as aa
from aggarray import memory
from tests.support.index_files import same_attrs, same_value
from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "pickles"
#: Indexes, references, extracts and small data files, some of which the pickles refer to.
KEPT = ROOT / "tests" / "fixtures" / "kept"
#: Placeholder of the root of the repository.
MARK = "@ROOT@"


def relocate(data: bytes, old: str, new: str) -> bytes:
    """Return a pickle of protocol 0 to 3 with ``old`` replaced by ``new`` in its texts.

    The lengths of texts are adapted. Nested pickles must have protocol 0, which has no lengths, and ``new`` must be ASCII
    without a backslash.
    """
    if not new.isascii() or "\\" in new or "\n" in new:
        raise ValueError(f"{new!r} is not ASCII, or has a backslash or line break")
    operations = [(operation, argument, at) for operation, argument, at in pickletools.genops(data) if at is not None]
    ends = [at for _, _, at in operations[1:]] + [len(data)]
    parts = []
    for (operation, argument, at), end in zip(operations, ends, strict=True):
        part = data[at:end]
        if isinstance(argument, str) and old in argument:
            if operation.name == "BINUNICODE":
                text = argument.replace(old, new).encode("utf-8", "surrogatepass")
                part = part[:1] + len(text).to_bytes(4, "little") + text
            elif operation.name == "UNICODE":
                part = part.replace(old.encode(), new.encode())
            else:
                raise ValueError(f"{operation.name} at byte {at} holds {old}: use protocol 0 or 2")
        parts.append(part)
    return b"".join(parts)


def names_in(data: bytes) -> set[str]:
    """Return the ``module name`` pairs that a pickle of protocol 0 to 3 imports."""
    return {str(argument) for operation, argument, _ in pickletools.genops(data) if operation.name == "GLOBAL"}


@contextmanager
def in_one_place(folder: Path) -> Iterator[str]:
    """Give the address of copies of files with constant names and times."""
    files = fsspec.filesystem("memory")
    for path in sorted(folder.iterdir()):
        files.pipe(f"/kept/{path.name}", path.read_bytes())
        made = files.store[f"/kept/{path.name}"]
        made.created = made.modified = datetime(2001, 1, 1, tzinfo=UTC)
    try:
        yield "memory://kept"
    finally:
        files.rm("/kept", recursive=True)


def same(actual: Any, expected: aa.MasterArray) -> None:
    """Compare the public properties, values, masks and coordinates of two arrays.

    Times of files may differ.
    """
    assert type(actual) is type(expected)
    for name in ("name", "dtype", "units", "calendar", "dimensions", "shape", "directions", "pmdimensions", "pmshape"):
        assert getattr(actual, name) == getattr(expected, name), name
    same_value(actual.fill_value, expected.fill_value)
    same_attrs(actual.attrs, expected.attrs)
    same_attrs(actual.file_attrs, expected.file_attrs)
    assert {p.data.uri for p in actual.partitions if p.data} == {p.data.uri for p in expected.partitions if p.data}
    a, b = actual.read(masked=True), expected.read(masked=True)
    if isinstance(a, memory.Ragged):
        np.testing.assert_array_equal(a.offsets, b.offsets)
        a, b = a.flat, b.flat
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
    np.testing.assert_array_equal(np.ma.getdata(a), np.ma.getdata(b))
    assert list(actual.coords) == list(expected.coords)
    for name in expected.coords:
        same(actual.coords[name], expected.coords[name])
