"""Sources of virtual datasets of HDF5, as boxes.

A virtual dataset maps selections of other datasets to its own. `mappings_of` reads the mappings, with h5py; `pieces_of` places
the source datasets, whose sizes it looks up. HDF5 reads the regions of mappings that are no boxes, such as those with gaps,
and of sources that do not exist, are of another type or have unusual storage.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import PLAIN

#: Greatest number of pieces of a dataset; HDF5 reads one of more.
_MOST = 1 << 16

#: Start, and size (None: to the end) of a box along each dimension.
Span = tuple[int, int | None]


class VirtualMapping(NamedTuple):
    """Boxes of a virtual dataset and of a source, both in C order.

    ``box``, ``part``: () for all. ``file`` None: a mapping between other selections, of which ``box`` has the bounds; otherwise
    ``file`` and ``dataset`` as stored. ``repeated``: the dimension along which ``%b`` in the names is the number of the block,
    whose size is that of the box.
    """

    box: tuple[Span, ...]
    file: str | None = None
    dataset: str = ""
    part: tuple[Span, ...] = ()
    repeated: int | None = None


class SourcePart(NamedTuple):
    """Part of a source dataset.

    ``starts``: of the part, per dimension of the source; ``dimensions``: the dimension of the virtual dataset along each of the
    source, None for one of size 1 that it lacks; ``dtype``: as stored, in native byte order.
    """

    path: str
    variable: str
    starts: tuple[int, ...]
    dimensions: tuple[int | None, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class VirtualPiece(NamedTuple):
    """Box of a virtual dataset; ``source`` None: HDF5 reads it.

    ``location``: (start, stop) per dimension.
    """

    location: tuple[tuple[int, int], ...]
    source: SourcePart | None = None


class _SourceDataset(NamedTuple):
    path: str
    variable: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def mappings_of(dataset: Any) -> list[VirtualMapping]:
    """Return the mappings of an h5py dataset, none if it is not virtual.

    The library's lock must be held.
    """
    if not dataset.is_virtual or os.environ.get("HDF5_VDS_PREFIX"):
        return []
    return [_mapping(source) for source in dataset.virtual_sources()]


def _mapping(source: Any) -> VirtualMapping:
    (box, is_box), (part, is_part) = _spans(source.vspace), _spans(source.src_space)
    names = source.file_name, source.dset_name
    if not is_box or not is_part:
        return VirtualMapping(box)
    if "%b" not in "".join(names):
        return VirtualMapping(box, *names, part)
    d = _unlimited(box)
    if d is None:
        return VirtualMapping(box)
    block = int(source.vspace.get_regular_hyperslab()[3][d])
    return VirtualMapping((*box[:d], (box[d][0], block), *box[d + 1 :]), *names, part, d)


def _spans(space: Any) -> tuple[tuple[Span, ...], bool]:
    """Return the bounds of a selection, () for all, and whether it fills them."""
    from h5py import h5s

    if space.get_select_type() == h5s.SEL_ALL:
        return (), True
    if space.get_select_type() != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        first, last = space.get_select_bounds()
        return tuple((int(a), int(b - a + 1)) for a, b in zip(first, last, strict=True)), False
    spans, fills = [], True
    for start, stride, count, block in zip(*space.get_regular_hyperslab(), strict=True):
        fills &= count == 1 or stride == block
        spans.append((int(start), None if h5s.UNLIMITED in (count, block) else int((count - 1) * stride + block)))
    return tuple(spans), fills


def _unlimited(spans: Sequence[Span]) -> int | None:
    """Return the only unlimited dimension of a box, None without one."""
    unlimited = [d for d, (_, size) in enumerate(spans) if size is None]
    return unlimited[0] if len(unlimited) == 1 else None


def pieces_of(
    path: str, shape: tuple[int, ...], mappings: Sequence[VirtualMapping], check: Callable[[str], bool]
) -> list[VirtualPiece]:
    """Return the pieces of a virtual dataset, none if there are too many.

    ``path``: of its file; ``check``: whether a source file may be read.
    """
    datasets: dict[tuple[str, str], _SourceDataset | None] = {}

    def look_up(file: str, name: str) -> _SourceDataset | None:
        where = path if file == "." else os.path.join(os.path.dirname(os.path.abspath(path)), file)
        if (where, name) not in datasets:
            datasets[where, name] = _look_up(where, name) if os.path.isfile(where) and check(where) else None
        return datasets[where, name]

    pieces: list[VirtualPiece] = []
    for mapping in mappings:
        for number, box in _boxes(mapping, shape):
            if len(pieces) == _MOST:
                return []
            names = () if mapping.file is None else [_numbered(text, number) for text in (mapping.file, mapping.dataset)]
            source = look_up(*names) if names else None
            piece = (source and _piece(source, box, mapping.part, shape)) or VirtualPiece(_clipped(box, shape))
            if all(start < stop for start, stop in piece.location):
                pieces.append(piece)
    return pieces


def _clipped(box: tuple[Span, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((start, n if size is None else min(n, start + size)) for (start, size), n in zip(box, shape, strict=True))


def _boxes(mapping: VirtualMapping, shape: tuple[int, ...]) -> "list[tuple[int | None, tuple[Span, ...]]]":
    """Return the boxes of a mapping in an array, with the numbers of blocks."""
    box = mapping.box or tuple((0, n) for n in shape)
    d = mapping.repeated
    if d is None:
        return [(None, box)]
    start, size = box[d]
    counts = range(0 if not size else max(0, -(-(shape[d] - start) // size)))
    return [(n, (*box[:d], (start + n * (size or 0), size), *box[d + 1 :])) for n in counts]


def _numbered(text: str, number: int | None) -> str:
    """Return a name with the number of a block.

    >>> _numbered("f-%b.h5", 3), _numbered("100%%", None)
    ('f-3.h5', '100%')
    """
    parts = text.split("%%")
    return "%".join(parts if number is None else [part.replace("%b", str(number)) for part in parts])


def _look_up(path: str, name: str) -> _SourceDataset | None:
    """Return a dataset of plain numbers in the file itself, else None."""
    variable = "/".join(filter(None, name.split("/")))
    group, slash, base = variable.rpartition("/")
    try:
        with closing(H5File(path)) as file:
            if file.has(f"{group}{slash}{NOT_COORDINATE}{base}"):
                return None  # two datasets for one name
            header = file.dataset(variable)
            datatype, space, _ = header.dataset
            plain = datatype.category == PLAIN and datatype.dtype is not None and datatype.dtype.kind in "iuf"
            if not plain or header.external or space.empty or file.shape(header) != space.shape:
                return None
            return _SourceDataset(path, variable, space.shape, np.dtype(datatype.dtype).newbyteorder("="))
    except (*UNREADABLE, OSError):
        return None


def _piece(
    source: _SourceDataset, box: tuple[Span, ...], part: tuple[Span, ...], shape: tuple[int, ...]
) -> VirtualPiece | None:
    """Return a source at its place, None unless both are boxes of one form."""
    part = part or tuple((0, n) for n in source.shape)
    if len(part) != len(source.shape):
        return None
    starts, growing = tuple(start for start, _ in part), (_unlimited(box), _unlimited(part))
    taken, given = _sizes(part, source.shape), _sizes(box, shape)
    if growing[0] is not None and growing[1] is not None:
        # The virtual dataset is as long as the source.
        given[growing[0]] = taken[growing[1]] = min(given[growing[0]], taken[growing[1]])
    dimensions = _matched(given, taken)
    location = tuple((start, start + n) for (start, _), n in zip(box, given, strict=True))
    fits = all(stop <= n for (_, stop), n in zip(location, shape, strict=True))
    fits &= all(start + n <= size for start, n, size in zip(starts, taken, source.shape, strict=True))
    if dimensions is None or not fits:
        return None
    return VirtualPiece(location, SourcePart(source.path, source.variable, starts, dimensions, source.shape, source.dtype))


def _sizes(box: Sequence[Span], shape: Sequence[int]) -> list[int]:
    """Return the size of a box, to the end of an array where unlimited."""
    return [max(0, n - start) if size is None else size for (start, size), n in zip(box, shape, strict=True)]


def _matched(box: Sequence[int], part: Sequence[int]) -> tuple[int | None, ...] | None:
    """Return the dimension of a box along each of a part of as many elements.

    >>> _matched([1, 3, 4], [3, 4]), _matched([3, 4], [1, 3, 4]), _matched([12], [3, 4])
    ((1, 2), (None, 0, 1), None)
    """
    if list(box) == list(part):
        return tuple(range(len(part)))
    long = [d for d, n in enumerate(box) if n != 1]
    if [box[d] for d in long] != [n for n in part if n != 1]:
        return None
    following = iter(long)
    return tuple(None if n == 1 else next(following) for n in part)
