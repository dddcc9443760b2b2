"""What does an HDF5 file hold, read by no library?

Names, order and attributes are as netCDF-C sees them in a netCDF-4 file; dimensions are scales, found by their number or by
references. In plain HDF5 dimensions without a scale have no name. What has no NumPy dtype is left out, with a reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aggarray.formats.base import Structure, Variable, stored_values, with_values
from aggarray.formats.hdf5.metadata.conventions import ObjectAttributes, attributes_at, shown_attributes
from aggarray.formats.hdf5.metadata.data import (
    UNDEFINED,
    UNREADABLE,
    Data,
    UnsupportedError,
    is_invalid,
    require,
    require_supported,
)
from aggarray.formats.hdf5.metadata.dimensions import (
    Contents,
    DatasetItem,
    contents_of,
    left_out,
    shared_variables,
    variables_of,
)
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import GlobalHeap
from aggarray.formats.hdf5.metadata.links import Links
from aggarray.formats.hdf5.metadata.rows import declared_rows, stored_rows
from aggarray.formats.hdf5.metadata.superblock import root_address
from aggarray.formats.hdf5.metadata.types import ROWS
from aggarray.formats.hdf5.metadata.values import check_storage, values_of
from aggarray.formats.hdf5.refusals import DEEPEST, NO_SCALE, NOT_UTF8, OUTSIDE, TOO_DEEP
from aggarray.formats.hdf5.rows import ragged_variables, select_sizes
from aggarray.storage.byte_source import ByteSource, open_source


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset: the path of its group with a slash at the end, its name, its address and header, what its attributes say."""

    prefix: str
    name: str
    address: int
    header: Header
    facts: ObjectAttributes


@dataclass(slots=True)
class _Walk:
    """What a walk through a file has found, in order: groups by path, datasets, what is left out and why.

    ``seen``: the addresses of groups; ``later``: links by name, as (prefix, name, address), looked at when all else is known.
    """

    data: Data
    heap: GlobalHeap
    links: Links
    groups: dict[str, ObjectAttributes] = field(default_factory=dict)
    datasets: list[_Dataset] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    later: list[tuple[str, str, int]] = field(default_factory=list)


def scan(path: str, by_library: Callable[[Variable], np.ndarray | None] | None = None) -> Structure:
    """Return the structure of a file; one of `data.UNREADABLE` where it is left to the library.

    ``by_library`` reads values of coordinates that only the HDF5 library decodes.
    """
    with open_source(path) as file:
        return _structure(path, file, by_library)


def _structure(path: str, file: ByteSource, by_library: Callable[[Variable], np.ndarray | None] | None = None) -> Structure:
    data = Data(file)
    root = root_address(data)
    found = _Walk(data, GlobalHeap(data), Links(data, root))
    _walk(found, root, header_at(data, root), "")
    for prefix, name, address in found.later:
        header = header_at(data, address)
        if not header.is_group:
            _note_dataset(found, prefix, name, address, header)
    items = _items(found)
    contents = contents_of(items)
    is_netcdf = not contents.nameless and (bool(contents.sizes) or found.groups[""].stamped)
    filled = _filled(found, items, contents, by_library)
    attrs = {prefix[:-1]: shown_attributes(facts, found.heap) for prefix, facts in found.groups.items()}
    return Structure(
        path,
        "netCDF4" if is_netcdf else "HDF5",
        attrs.pop(""),
        filled,
        attrs,
        (*found.skipped, *contents.skipped),
        sizes=dict(contents.sizes) if is_netcdf else None,
        elsewhere=contents.elsewhere,
    )


def _filled(
    found: _Walk, items: tuple[DatasetItem, ...], contents: Contents, by_library: Callable[[Variable], np.ndarray | None] | None
) -> tuple[Variable, ...]:
    """Return the variables, those that a scan reads with their values."""
    variables, wanted = _variables(found, items)
    sizes_of_rows: dict[str, np.ndarray] = {}
    if contents.rows:
        (variables, sizes_of_rows), wanted = _with_rows(found, items, variables), None
    places = {d.path: d for d in contents.variables}

    def read(variable: Variable) -> np.ndarray | None:
        """Return the values of a variable, None for those that a scan does not read."""
        if variable.name in sizes_of_rows:
            return sizes_of_rows[variable.name]
        place = places[variable.name]
        if not place.read:
            return None
        if items[place.number].space.empty:
            return np.empty(0, variable.dtype)
        try:
            values = values_of(found.data, found.heap, found.datasets[place.number].header, place.lengths)
        except UnsupportedError as error:
            if by_library is None or is_invalid(error):
                raise
            return by_library(variable)
        return stored_values(values, variable.attrs, place.joined).astype(variable.dtype, copy=False)

    return with_values(variables, read, wanted)


def _walk(found: _Walk, address: int, header: Header, prefix: str) -> None:
    """Collect the datasets of a group, then what is in the groups in it, as netCDF-C does."""
    found.seen.add(address)
    facts = found.groups[prefix] = attributes_at(found.data, header)
    found.skipped += left_out(prefix[:-1], facts)
    inner = []
    for link in found.links.of(address, header):
        try:
            name = link.name.decode("utf-8")
        except UnicodeDecodeError:
            escaped = link.name.decode("utf-8", "backslashreplace")
            found.skipped.append((f"{prefix}{escaped}", NOT_UTF8))
            continue
        target = link.address if link.target is None else found.links.resolve(address, link.name)
        if isinstance(target, str) or target == UNDEFINED:
            found.skipped.append((f"{prefix}{name}", target if isinstance(target, str) else OUTSIDE))
        elif link.target is not None:
            found.later.append((prefix, name, target))
        elif (item := header_at(found.data, target)).is_group:
            inner.append((target, item, f"{prefix}{name}"))
        else:
            _note_dataset(found, prefix, name, target, item)
    for at, item, path in inner:
        # promise: hdf5-group-depth
        if path.count("/") > DEEPEST:
            found.skipped.append((path, TOO_DEEP))
        # promise: hdf5-group-cycles
        elif at not in found.seen:
            _walk(found, at, item, f"{path}/")


def _note_dataset(found: _Walk, prefix: str, name: str, address: int, header: Header) -> None:
    if header.layout is None and header.virtual is None and header.space is None and header.datatype is not None:
        return  # a datatype with a name
    found.datasets.append(_Dataset(prefix, name, address, header, attributes_at(found.data, header)))


def _items(found: _Walk) -> tuple[DatasetItem, ...]:
    """Return what is known of the datasets without their addresses."""
    positions: dict[int, int] = {}
    for position, dataset in enumerate(found.datasets):
        if dataset.facts.scale:
            positions.setdefault(dataset.address, position)
    return tuple([_item(found, dataset, positions, n) for n, dataset in enumerate(found.datasets)])


def _item(found: _Walk, dataset: _Dataset, positions: Mapping[int, int], number: int) -> DatasetItem:
    header, facts = dataset.header, dataset.facts
    datatype, space, layout = header.datatype, header.space, header.layout
    if datatype is None or space is None or layout is None:
        require(space is not None, "values without a dataspace")
        if datatype is None or space is None or header.virtual is None:
            raise UnsupportedError("neither a group nor an ordinary dataset")
        # How long it is then, the files tell that it is made of.
        require_supported(-1 not in space.most, "virtual dataset with an unlimited dimension")
    elif not header.external:
        check_storage(found.data, layout, datatype.size * space.count)
    scales: tuple[int | None, ...] | None = None
    if facts.scale and positions[dataset.address] != number:
        scales = (positions[dataset.address],)
    elif facts.listed is not None and facts.numbers is None and not facts.scale:
        addresses = [_referred(found, *element) for element in facts.listed]
        scales = tuple([positions[a] if a in positions else _checked(found, dataset, a) for a in addresses])
    elif facts.scales is not None:
        scales = tuple([positions[a] if a in positions else _checked(found, dataset, a) for a in facts.scales])
    return DatasetItem(dataset.prefix, dataset.name, space, datatype, facts, scales, layout is None or header.external)


def _checked(found: _Walk, dataset: _Dataset, address: int) -> int | None:
    """Return None for an address at which no scale is; where no object is, as after a scale was deleted, that is noted."""
    if address not in (0, UNDEFINED):
        try:
            header_at(found.data, address, lenient=True)
        except UNREADABLE:
            found.skipped.append((f"{dataset.prefix}{dataset.name}:DIMENSION_LIST", NO_SCALE))
    return None


def _referred(found: _Walk, count: int, address: int, number: int) -> int:
    """Return the address of the first scale of a dimension, `data.UNDEFINED` where it has none."""
    if not count:
        return UNDEFINED
    packed = found.heap.get(address, number)
    require(len(packed) == 8 * count, "malformed reference")
    return int.from_bytes(packed[:8], "little")


def _variables(found: _Walk, items: tuple[DatasetItem, ...]) -> tuple[tuple[Variable, ...], frozenset[str] | None]:
    """Return the variables, and whose values a scan reads where that is known already."""
    if all(item.facts.shareable for item in items):
        return shared_variables(items)
    return variables_of(items, [shown_attributes(item.facts, found.heap) for item in items])


def _with_rows(
    found: _Walk, items: tuple[DatasetItem, ...], variables: Sequence[Variable]
) -> tuple[tuple[Variable, ...], dict[str, np.ndarray]]:
    """Return the variables with samples and sizes in place of rows, and the values of these sizes."""
    taken = {item.path for item in items}
    headers = {item.path: dataset.header for item, dataset in zip(items, found.datasets, strict=True)}
    shown: list[Variable] = []
    sizes: dict[str, np.ndarray] = {}
    for variable in variables:
        header = headers[variable.name]
        if header.datatype is None or header.datatype.category != ROWS:
            shown.append(variable)
        # promise: hdf5-rows-memory
        elif claim := declared_rows(found.data, header):
            found.skipped.append((variable.name, claim))
        else:
            counts = stored_rows(found.data, header).elements["count"].astype(np.int64)
            shown += ragged_variables(variable, counts, taken)
            sizes[shown[-1].name] = select_sizes(counts, slice(0, shown[-1].shape[0]))
    return tuple(shown), sizes
