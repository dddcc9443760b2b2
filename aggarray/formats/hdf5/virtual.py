"""Sources of virtual datasets of HDF5, as pieces.

`pieces_of` looks the source datasets up and places them in a virtual dataset. Sources that are virtual themselves are replaced
by theirs. HDF5 reads the other regions: those where mappings overlap or are finely interleaved, those of types that it converts
in its own way, and those of sources with unusual storage. Such a piece lists the datasets that HDF5 reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import product
from math import prod
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.errors import AggarrayError, AggregationError
from aggarray.formats.base import LIBRARY_LOCK, naming_errors
from aggarray.formats.hdf5.external import Source, candidates, sources_in
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import PLAIN
from aggarray.formats.hdf5.metadata.validation import is_damaged
from aggarray.formats.hdf5.refusals import DANGLING
from aggarray.formats.hdf5.virtual_mapping import (
    MappedRuns,
    Selection,
    VirtualLayout,
    VirtualMapping,
    bounds_of,
    numbered,
    runs_of,
    selections_of,
)
from aggarray.partition.grid import refine

#: Greatest number of pieces of a dataset, and of nested virtual datasets.
_MOST, _DEEPEST = 1 << 16, 16
#: Greatest number of a numbered source that is looked up.
_MOST_BLOCKS = 1 << 20

#: Fault of a file that was not opened.
FORBIDDEN = "outside the folders that may be read"

Location = tuple[tuple[int, int], ...]


class SourceVariable(NamedTuple):
    """Dataset of another file, "" for external storage.

    ``fault``: why a virtual dataset has none of its values.
    """

    path: str
    variable: str
    fault: str = ""


class SourcePart(NamedTuple):
    """Part of a source dataset.

    ``positions``: per dimension of the source; ``dimensions``: the dimension of the virtual dataset along each of the source,
    None for one of size 1 that it lacks; ``dtype``: as stored, in native byte order.
    """

    path: str
    variable: str
    positions: tuple[range, ...]
    dimensions: tuple[int | None, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class VirtualPiece(NamedTuple):
    """Box of a virtual dataset; ``source`` None: HDF5 reads it.

    ``location``: (start, stop) per dimension; ``files``: the datasets from which HDF5 reads it.
    """

    location: Location
    source: SourcePart | None = None
    files: tuple[SourceVariable, ...] = ()


class _SourceDataset(NamedTuple):
    """Dataset; ``files``: itself and its own sources.

    ``dtype`` None: only HDF5 reads it; ``pieces``: of a virtual dataset.
    """

    files: tuple[SourceVariable, ...]
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] | None = None
    pieces: list[VirtualPiece] | None = None


class SourceDatasets:
    """Datasets that mappings name, each looked up once.

    ``check``: whether a file may be read.
    """

    def __init__(self, path: str, variable: str, check: Callable[[str], bool]) -> None:
        self._check = check
        self._known: dict[tuple[str, str], _SourceDataset] = {}
        self._active = [(os.path.realpath(path), variable)]

    def find(self, home: str, file: str, name: str) -> _SourceDataset:
        """Return a dataset as the file ``home`` names it."""
        path, variable = candidates(home, file)[0], "/".join(filter(None, name.split("/")))
        key = os.path.realpath(path), variable
        if key in self._active or len(self._active) > _DEEPEST:
            fault = (
                "it refers to itself" if key in self._active else f"more than {_DEEPEST} virtual datasets refer to each other"
            )
            return _SourceDataset((SourceVariable(path, variable, fault),))
        if key not in self._known:
            self._active.append(key)
            self._known[key] = self._look_up(path, variable)
            self._active.pop()
        return self._known[key]

    def _look_up(self, path: str, variable: str) -> _SourceDataset:
        fault = ""
        if not os.path.lexists(path):
            fault = "no such file"
        elif not self._check(path):
            fault = FORBIDDEN
        elif os.path.isfile(path):
            try:
                with closing(H5File(path)) as file:
                    address = file.resolve(file.address, os.fsencode(variable))
                    if address != DANGLING:
                        return self._described(file, address, path, variable)
                fault = f"no dataset {variable!r}"
            except (*UNREADABLE, OSError):
                pass  # HDF5 reads it, or raises an error
        return _SourceDataset((SourceVariable(path, variable, fault),))

    def _described(self, file: H5File, address: int | str, path: str, variable: str) -> _SourceDataset:
        """Return a dataset of an open file; raises `data.UNREADABLE`."""
        own = (SourceVariable(path, variable),)
        if isinstance(address, str):
            return _SourceDataset(own)  # a link into another file
        group, slash, base = variable.rpartition("/")
        if file.has(f"{group}{slash}{NOT_COORDINATE}{base}"):
            return _SourceDataset(own)  # two datasets for one name
        header = header_at(file.data, address)
        if header.virtual is not None:
            return self._nested(header, path, variable)
        if header.external:
            return _SourceDataset((*own, *(SourceVariable(s.path, "") for s in sources_in(Source(path, variable)))))
        datatype, space, _ = header.dataset
        is_plain = datatype.category == PLAIN and datatype.dtype is not None and datatype.dtype.kind in "iuf"
        if not is_plain or space.empty or file.shape(header) != space.shape:
            return _SourceDataset(own)
        return _SourceDataset(own, space.shape, np.dtype(datatype.dtype).newbyteorder("="))

    def _nested(self, header: Header, path: str, variable: str) -> _SourceDataset:
        own = SourceVariable(path, variable)
        try:
            layout = _layout(header, path, variable)
        except (AggarrayError, OSError):
            return _SourceDataset((own,))
        pieces = disjoint_pieces(path, layout, self)
        files = tuple(dict.fromkeys([own, *(f for piece in pieces for f in piece.files)]))
        return _SourceDataset(files, layout.shape, None, pieces)


def _layout(header: Header, path: str, variable: str) -> VirtualLayout:
    """Return the layout of a virtual dataset of another file."""
    from aggarray.formats.hdf5.h5py_files import open_file
    from aggarray.formats.hdf5.isolated import call_isolated, can_isolate
    from aggarray.formats.hdf5.library import H5pyFile

    # For an unlimited shape, the library opens sources, which were not validated.
    is_safe = header.space is not None and -1 not in header.space.most and not is_damaged(path)
    if not is_safe and can_isolate():
        isolated: VirtualLayout = call_isolated(path, "virtual_layout", variable)
        return isolated
    with LIBRARY_LOCK, naming_errors(path, variable), closing(H5pyFile(path, open_file(path))) as file:
        return file.virtual_layout(variable)


def pieces_of(
    path: str, variable: str, layout: VirtualLayout, stored: np.dtype[Any], check: Callable[[str], bool]
) -> list[VirtualPiece]:
    """Return disjoint pieces of a virtual dataset of a file.

    HDF5 gives the fill value elsewhere. ``stored``: dtype of the virtual dataset; ``check``: whether a source file may be read.
    """
    pieces = disjoint_pieces(path, layout, SourceDatasets(path, variable, check))
    # HDF5 converts numbers once, also through several virtual datasets.
    return [p if p.source is None or converts(p.source.dtype, stored) else p._replace(source=None) for p in pieces]


def converts(source: np.dtype[Any], stored: np.dtype[Any]) -> bool:
    """Return whether NumPy converts numbers as HDF5 does.

    HDF5 clips integers, and has its own rounding of floating-point numbers.

    >>> [converts(np.dtype(a), np.dtype(b)) for a, b in (("i8", "f4"), ("i2", "i4"), ("i4", "i2"), ("f8", "f4"))]
    [True, True, False, False]
    """
    return np.can_cast(source, stored, "safe") or (source.kind in "iu" and stored in (np.float32, np.float64))


def disjoint_pieces(path: str, layout: VirtualLayout, datasets: SourceDatasets) -> list[VirtualPiece]:
    """Return the pieces of a virtual dataset; see `pieces_of`."""
    shape, groups, count = layout.shape, list[list[VirtualPiece]](), 0
    for mapping in layout.mappings:
        for number, selection in selections_of(mapping, shape):
            if (number or 0) > _MOST_BLOCKS:
                break
            source = datasets.find(path, numbered(mapping.file, number), numbered(mapping.dataset, number))
            is_many = count > _MOST
            pieces = [_by_library(selection, source, shape)] if is_many else _pieces(selection, mapping, source, shape)
            groups.append([p for p in pieces if all(start < stop for start, stop in p.location)])
            count += len(pieces)
    try:
        return _single_piece(groups, shape) if count > _MOST else _disjoint(groups, shape)
    except AggregationError:  # a matrix of too many cells
        return _single_piece(groups, shape)


def _by_library(selection: Selection, source: _SourceDataset, shape: tuple[int, ...]) -> VirtualPiece:
    return VirtualPiece(bounds_of(selection, shape), None, source.files)


def _single_piece(groups: Sequence[Sequence[VirtualPiece]], shape: tuple[int, ...]) -> list[VirtualPiece]:
    files = tuple(dict.fromkeys(f for group in groups for piece in group for f in piece.files))
    return [VirtualPiece(tuple((0, n) for n in shape), None, files)]


def _pieces(
    selection: Selection, mapping: VirtualMapping, source: _SourceDataset, shape: tuple[int, ...]
) -> list[VirtualPiece]:
    """Return the pieces of a mapping; a first one may lie under the others."""
    is_known = mapping.is_regular and not (source.dtype is None and source.pieces is None)
    mapped = runs_of(selection, mapping.part, shape, source.shape) if is_known else None
    if mapped is None:
        return [_by_library(selection, source, shape)]
    placed = _placed(mapped, source)
    if source.pieces is None:
        return placed
    if len(placed) * len(source.pieces) > _MOST:
        return [_by_library(selection, source, shape)]
    is_covered = sum(prod(stop - start for start, stop in p.location) for p in source.pieces) == prod(source.shape)
    pieces = [] if is_covered else [VirtualPiece(bounds_of(selection, shape), None, source.files[:1])]
    for outer, inner in product(placed, source.pieces):
        nested = _nested_piece(outer, inner, source.files[0])
        pieces += [] if nested is None else [nested]
    return pieces


def _placed(mapped: MappedRuns, source: _SourceDataset) -> list[VirtualPiece]:
    """Return the runs of a source as pieces."""
    own, pieces = source.files[0], []
    for runs in product(*mapped.runs):
        location = tuple((start, start + len(positions)) for start, positions in runs)
        axes = zip(mapped.dimensions, mapped.starts, strict=True)
        positions = tuple(range(start, start + 1) if d is None else runs[d][1] for d, start in axes)
        part = SourcePart(own.path, own.variable, positions, mapped.dimensions, source.shape, source.dtype or np.dtype("f8"))
        pieces.append(VirtualPiece(location, part, (own,)))
    return pieces


def _nested_piece(outer: VirtualPiece, inner: VirtualPiece, between: SourceVariable) -> VirtualPiece | None:
    """Return the part of a piece that a piece of its virtual source shows."""
    part = outer.source
    location, shown = list(outer.location), list[range]()
    if part is None:
        return None
    for d, positions, (start, stop) in zip(part.dimensions, part.positions, inner.location, strict=True):
        first = max(0, -(-(start - positions.start) // positions.step))
        end = min(len(positions), -(-(stop - positions.start) // positions.step))
        if first >= end:
            return None
        if d is not None:
            location[d] = location[d][0] + first, location[d][0] + end
        shown.append(range(positions[first] - start, positions[end - 1] - start + 1, positions.step))
    files = tuple(dict.fromkeys([between, *inner.files]))
    if inner.source is None:
        return VirtualPiece(tuple(location), None, files)
    axes = list(zip(inner.source.positions, inner.source.dimensions, strict=True))
    leaf = tuple(p if x is None else p[shown[x].start : shown[x].stop : shown[x].step] for p, x in axes)
    dimensions = tuple(None if x is None else part.dimensions[x] for _, x in axes)
    return VirtualPiece(tuple(location), inner.source._replace(positions=leaf, dimensions=dimensions), files)


def _disjoint(groups: Sequence[Sequence[VirtualPiece]], shape: tuple[int, ...]) -> list[VirtualPiece]:
    """Cut overlapping pieces; HDF5 reads what several mappings show."""
    pieces = [piece for group in groups for piece in group]
    boxes = np.array([piece.location for piece in pieces], np.int64).reshape(len(pieces), len(shape), 2)
    names = [str(d) for d in range(len(shape))]
    if not pieces or refine(boxes, shape, names).overlap is None:
        return pieces
    cover = refine(boxes, shape, names, "every")
    if len(cover.box) > _MOST:
        return _single_piece(groups, shape)
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    order = np.argsort(cover.cell, kind="stable")
    result = []
    for cell in np.split(order, np.flatnonzero(np.diff(cover.cell[order])) + 1):
        numbers, corner = cover.box[cell], cover.index[:, cell[0]]
        location = tuple((int(e[i]), int(e[i + 1])) for e, i in zip(cover.edges, corner, strict=True))
        if len(set(group_of[numbers].tolist())) == 1:
            result.append(_cut(pieces[numbers[-1]], location))
        else:
            files = dict.fromkeys(f for number in numbers for f in pieces[number].files)
            result.append(VirtualPiece(location, None, tuple(files)))
    return result


def _cut(piece: VirtualPiece, location: Location) -> VirtualPiece:
    if piece.source is None:
        return piece._replace(location=location)
    cuts = [slice(a - own, b - own) for (a, b), (own, _) in zip(location, piece.location, strict=True)]
    axes = zip(piece.source.positions, piece.source.dimensions, strict=True)
    positions = tuple(p if d is None else p[cuts[d]] for p, d in axes)
    return piece._replace(location=location, source=piece.source._replace(positions=positions))
