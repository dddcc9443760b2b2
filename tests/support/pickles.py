"""Pickles in ``fixtures/pickles``: where they lie, and how the root of the repository gets out of them and in again."""

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
#: Indexes, references, extracts and small data files that lie beside the pickles, which name some of them.
KEPT = ROOT / "tests" / "fixtures" / "kept"
#: Stands for the root of the repository.
MARK = "@ROOT@"


def relocate(data: bytes, old: str, new: str) -> bytes:
    """Return a pickle of protocol 0 to 3 in which texts hold ``new`` for ``old``; lengths in front of texts are adapted.

    Pickles inside of pickles have to be of protocol 0, which has no lengths, and ``new`` ASCII without a backslash.
    """
    if not new.isascii() or "\\" in new or "\n" in new:
        raise ValueError(f"{new!r}: no ASCII without backslashes and line breaks")
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
    """Return what a pickle of protocol 0 to 3 imports, ``module name`` each."""
    return {str(argument) for operation, argument, _ in pickletools.genops(data) if operation.name == "GLOBAL"}


@contextmanager
def in_one_place(folder: Path) -> Iterator[str]:
    """Give the address of copies of files that have the same names and times wherever, and whenever, they are made."""
    files = fsspec.filesystem("memory")
    for path in sorted(folder.iterdir()):
        files.pipe(f"/kept/{path.name}", path.read_bytes())
        made = files.store[f"/kept/{path.name}"]
        made.created = made.modified = datetime(2001, 1, 1, tzinfo=UTC)
    try:
        yield "memory://kept"
    finally:
        files.rm("/kept", recursive=True)


def same(found: Any, wanted: aa.MasterArray) -> None:
    """Compare what is public of two arrays, values, masks and coordinates too; times of files may differ."""
    assert type(found) is type(wanted)
    for name in ("name", "dtype", "units", "calendar", "dimensions", "shape", "directions", "pmdimensions", "pmshape"):
        assert getattr(found, name) == getattr(wanted, name), name
    same_value(found.fill_value, wanted.fill_value)
    same_attrs(found.attrs, wanted.attrs)
    same_attrs(found.file_attrs, wanted.file_attrs)
    assert {p.data.uri for p in found.partitions if p.data} == {p.data.uri for p in wanted.partitions if p.data}
    one, other = found.read(masked=True), wanted.read(masked=True)
    if isinstance(one, memory.Ragged):
        np.testing.assert_array_equal(one.offsets, other.offsets)
        one, other = one.flat, other.flat
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
    np.testing.assert_array_equal(np.ma.getdata(one), np.ma.getdata(other))
    assert list(found.coords) == list(wanted.coords)
    for name in wanted.coords:
        same(found.coords[name], wanted.coords[name])
