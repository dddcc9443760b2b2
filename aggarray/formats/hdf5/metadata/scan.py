"""Scan of an HDF5 file without the library.

Names, order and attributes are those of netCDF-C in a netCDF-4 file. Dimensions are dimension scales, found by number or by
reference. In plain HDF5 a dimension without a scale has no name. Items without a NumPy dtype are skipped with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import numpy as np

from aggarray.dataclass import dataclass, field
from aggarray.formats.base import Structure, Variable, stored_values, with_values
from aggarray.formats.hdf5.metadata.attributes import ObjectAttributes, shown_attributes
from aggarray.formats.hdf5.metadata.data import UNDEFINED, UNREADABLE, UnsupportedError, is_invalid, require, require_supported
from aggarray.formats.hdf5.metadata.dimensions import (
    Contents,
    DatasetItem,
    contents_of,
    shared_variables,
    skipped_attributes,
    variables_of,
)
from aggarray.formats.hdf5.metadata.groups import attributes_at
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import heap_object
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import ROWS
from aggarray.formats.hdf5.metadata.values import check_storage, values_of
from aggarray.formats.hdf5.refusals import DEEPEST, NO_SCALE, NOT_UTF8, OUTSIDE, TOO_DEEP


@dataclass(frozen=True, slots=True)
class _Dataset:
    """Dataset with the path of its group, which ends in a slash."""

    prefix: str
    name: str
    address: int
    header: Header
    facts: ObjectAttributes


@dataclass(slots=True)
class _Walk:
    """Groups by path, datasets and skipped items of a walk, in order.

    ``visited``: addresses of the visited groups; ``soft_links``: (prefix, name, address), processed after all hard links.
    """

    file: H5File
    groups: dict[str, ObjectAttributes] = field(default_factory=dict)
    datasets: list[_Dataset] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    soft_links: list[tuple[str, str, int]] = field(default_factory=list)


def scan(path: str, by_library: Callable[[Variable], np.ndarray | None] | None = None) -> Structure:
    """Return the structure of a file, or raise one of `data.UNREADABLE`.

    ``by_library`` reads the values of coordinates that only the HDF5 library decodes.
    """
    with closing(H5File(path)) as file:
        walk, items = _items_of(file)
        contents = contents_of(items)
        return _structure(path, walk, contents, _filled(walk, items, contents, by_library))


def scan_headers(file: H5File, path: str) -> tuple[Structure, dict[str, Header]]:
    """Return the structure of an open file, and the header of each variable.

    No values are read. Raises one of `data.UNREADABLE`.
    """
    walk, items = _items_of(file)
    contents, (variables, _) = contents_of(items), _variables(walk, items)
    headers = {described.path: walk.datasets[described.number].header for described in contents.variables}
    return _structure(path, walk, contents, variables), headers


def _items_of(file: H5File) -> tuple[_Walk, tuple[DatasetItem, ...]]:
    walk = _Walk(file)
    _walk(walk, file.address, file.root, "")
    for prefix, name, address in walk.soft_links:
        header = header_at(file.data, address)
        if not header.is_group:
            _note_dataset(walk, prefix, name, address, header)
    positions: dict[int, int] = {}
    for position, dataset in enumerate(walk.datasets):
        if dataset.facts.scale:
            positions.setdefault(dataset.address, position)
    # Items have no addresses, so that files with equal datasets share the results.
    return walk, tuple([_item(walk, dataset, positions, n) for n, dataset in enumerate(walk.datasets)])


def _structure(path: str, walk: _Walk, contents: Contents, variables: tuple[Variable, ...]) -> Structure:
    is_netcdf = not contents.nameless and (bool(contents.sizes) or walk.groups[""].stamped)
    attrs = {prefix[:-1]: shown_attributes(facts, walk.file.data) for prefix, facts in walk.groups.items()}
    return Structure(
        path,
        "netCDF4" if is_netcdf else "HDF5",
        attrs.pop(""),
        variables,
        attrs,
        (*walk.skipped, *contents.skipped),
        sizes=dict(contents.sizes) if is_netcdf else None,
        external_files=contents.external_files,
    )


def _variables(walk: _Walk, items: tuple[DatasetItem, ...]) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and the names of those whose values a scan reads."""
    if all([item.facts.shareable for item in items]):
        return shared_variables(items)
    return variables_of(items, [shown_attributes(item.facts, walk.file.data) for item in items])


def _filled(
    walk: _Walk, items: tuple[DatasetItem, ...], contents: Contents, by_library: Callable[[Variable], np.ndarray | None] | None
) -> tuple[Variable, ...]:
    data = walk.file.data
    names: frozenset[str] | None
    variables, names = _variables(walk, items)
    sizes_of_rows: dict[str, np.ndarray] = {}
    if contents.rows:
        (variables, sizes_of_rows), names = _with_rows(walk, items, variables), None
    described = {d.path: d for d in contents.variables}

    def read(variable: Variable) -> np.ndarray | None:
        if variable.name in sizes_of_rows:
            return sizes_of_rows[variable.name]
        description = described[variable.name]
        if not description.read:
            return None
        if items[description.number].space.empty:
            return np.empty(0, variable.dtype)
        try:
            values = values_of(data, walk.datasets[description.number].header, description.lengths)
        except UnsupportedError as error:
            if by_library is None or is_invalid(error):
                raise
            return by_library(variable)
        return stored_values(values, variable.attrs, description.joined).astype(variable.dtype, copy=False)

    return with_values(variables, read, names)


def _walk(walk: _Walk, address: int, header: Header, prefix: str) -> None:
    """Collect a group's datasets, then its child groups, as netCDF-C does."""
    walk.visited.add(address)
    attributes = walk.groups[prefix] = attributes_at(walk.file.data, header)
    if attributes.left:
        walk.skipped += skipped_attributes(prefix[:-1], attributes)
    children = []
    for link in walk.file.links_at(address, header):
        try:
            name = link.name.decode("utf-8")
        except UnicodeDecodeError:
            escaped = link.name.decode("utf-8", "backslashreplace")
            walk.skipped.append((f"{prefix}{escaped}", NOT_UTF8))
            continue
        target = link.address if link.target is None else walk.file.resolve(address, link.name)
        if isinstance(target, str) or target == UNDEFINED:
            walk.skipped.append((f"{prefix}{name}", target if isinstance(target, str) else OUTSIDE))
        elif link.target is not None:
            walk.soft_links.append((prefix, name, target))
        elif (item := header_at(walk.file.data, target)).is_group:
            children.append((target, item, f"{prefix}{name}"))
        else:
            _note_dataset(walk, prefix, name, target, item)
    for at, item, path in children:
        # promise: hdf5-group-depth
        if path.count("/") > DEEPEST:
            walk.skipped.append((path, TOO_DEEP))
        # promise: hdf5-group-cycles
        elif at not in walk.visited:
            _walk(walk, at, item, f"{path}/")


def _note_dataset(walk: _Walk, prefix: str, name: str, address: int, header: Header) -> None:
    if header.layout is None and header.virtual is None and header.space is None and header.datatype is not None:
        return  # a committed datatype
    walk.datasets.append(_Dataset(prefix, name, address, header, attributes_at(walk.file.data, header)))


def _item(walk: _Walk, dataset: _Dataset, positions: Mapping[int, int], number: int) -> DatasetItem:
    header, facts = dataset.header, dataset.facts
    datatype, space, layout = header.datatype, header.space, header.layout
    if datatype is None or space is None or layout is None:
        require(space is not None, "values without a dataspace")
        if datatype is None or space is None or header.virtual is None:
            raise UnsupportedError("neither a group nor an ordinary dataset")
        # The length of an unlimited virtual dataset depends on its source files.
        require_supported(-1 not in space.most, "virtual dataset with an unlimited dimension")
    elif not header.external:
        check_storage(walk.file.data, layout, datatype.size * space.count)
    addresses = facts.scales
    if facts.scale and positions[dataset.address] != number:
        addresses = (dataset.address,)
    elif facts.listed is not None and facts.numbers is None and not facts.scale:
        addresses = tuple([_referenced(walk, *element) for element in facts.listed])
    scales: tuple[int | None, ...] | None = None
    if addresses is not None:
        scales = tuple([positions[a] if a in positions else _without_scale(walk, dataset, a) for a in addresses])
    return DatasetItem(dataset.prefix, dataset.name, space, datatype, facts, scales, layout is None or header.external)


def _without_scale(walk: _Walk, dataset: _Dataset, address: int) -> int | None:
    """Return None for an address without a scale; record a missing object."""
    if address not in (0, UNDEFINED):
        try:
            header_at(walk.file.data, address, lenient=True)
        except UNREADABLE:
            walk.skipped.append((f"{dataset.prefix}{dataset.name}:DIMENSION_LIST", NO_SCALE))
    return None


def _referenced(walk: _Walk, count: int, address: int, number: int) -> int:
    """Return the address of a dimension's first scale, or `data.UNDEFINED`."""
    if not count:
        return UNDEFINED
    packed = heap_object(walk.file.data, address, number)
    require(len(packed) == 8 * count, "malformed reference")
    return int.from_bytes(packed[:8], "little")


def _with_rows(
    walk: _Walk, items: tuple[DatasetItem, ...], variables: Sequence[Variable]
) -> tuple[tuple[Variable, ...], dict[str, np.ndarray]]:
    from aggarray.formats.hdf5.metadata.rows import refuse_rows, stored_rows
    from aggarray.formats.hdf5.rows import ragged_variables, select_sizes

    names = {item.path for item in items}
    headers = {item.path: dataset.header for item, dataset in zip(items, walk.datasets, strict=True)}
    expanded: list[Variable] = []
    sizes: dict[str, np.ndarray] = {}
    for variable in variables:
        header = headers[variable.name]
        if header.datatype is None or header.datatype.category != ROWS:
            expanded.append(variable)
        # promise: hdf5-rows-memory
        elif reason := refuse_rows(walk.file.data, header):
            walk.skipped.append((variable.name, reason))
        else:
            counts = stored_rows(walk.file.data, header).elements["count"].astype(np.int64)
            expanded += ragged_variables(variable, counts, names)
            sizes[expanded[-1].name] = select_sizes(counts, slice(0, expanded[-1].shape[0]))
    return tuple(expanded), sizes
