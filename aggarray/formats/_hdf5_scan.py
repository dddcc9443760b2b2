"""What is in an HDF5 file, seen through h5py?

The part of the HDF5 format that serves files which netCDF4 does not see whole: dimensions come from attached dimension
scales where there are any (netCDF-4's own conventions for them included), and are nameless otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aggarray.encoding import decode_text, plain_text
from aggarray.formats._hdf5_links import DEEPEST, borrows, is_pure_dimension, leads_outside
from aggarray.formats._hdf5_rows import as_rows, samples_dtype, sizes_of, unbelievable
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    Structure,
    Variable,
    blaming,
    has_coordinate,
    reason,
    stored_variable,
    with_values,
)

#: How netCDF-4 stores a variable that is named like a dimension but is not its coordinate variable.
NOT_COORDINATE = "_nc4_non_coord_"

#: HDF5's mark of an object that says where its values lie, among those of all messages that it has.
_LAYOUT = 1 << 8

_INTERNAL = {
    *("_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"),
    *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
}


@dataclass(slots=True)
class _Found:
    """What a walk through a file collects: datasets by name, attributes of groups, what is skipped and why.

    ``scales`` names dimension scales by their address in the file, ``dimids`` by netCDF-4's number.
    """

    datasets: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    scales: dict[int, str] = field(default_factory=dict)
    dimids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A readable dataset: its path and name, stored dtype, and per dimension the address and the name of its scale, if any."""

    path: str
    name: str
    dataset: Any
    dtype: np.dtype[Any]
    axes: tuple[int | None, ...]
    dimensions: tuple[str | None, ...]


def scan_structure(path: str, file: Any, label: str, read: Callable[[Variable], np.ndarray | None]) -> Structure:
    """Return the structure of an open h5py file; ``label`` is its format, ``read`` gives the values of a variable."""
    found = _Found()
    _walk(file, "", found, {_address(file)})
    entries: list[_Entry] = []
    for name, dataset in found.datasets.items():
        with blaming(path, name):
            if is_pure_dimension(dataset):
                continue
            dtype = unbelievable(dataset) or samples_dtype(dataset) or plain_dtype(dataset)
            if isinstance(dtype, str):
                found.skipped.append((name, dtype))
            else:
                entries.append(_entry(file, name, dtype, found))
    lengths = _lengths(entries)
    spans = {entry.name: entry.dimensions for entry in entries}
    variables = []
    for entry in entries:
        with blaming(path, entry.path):
            variable = _variable(entry, lengths, spans)
            if samples_dtype(entry.dataset) is None:
                variables.append(variable)
            else:
                variables += as_rows(variable, sizes_of(path, entry.dataset), found.datasets)

    def read_named(variable: Variable) -> np.ndarray | None:
        """Return the values of a variable; errors name it."""
        with blaming(path, variable.name):
            return read(variable)

    filled, skipped = with_values(variables, read_named), tuple(found.skipped)
    borrowed = tuple(entry.name for entry in entries if borrows(entry.dataset.id))
    return Structure(path, label, _attributes(file), filled, found.groups, skipped, elsewhere=borrowed)


def _walk(group: Any, prefix: str, found: _Found, above: set[int]) -> None:
    """Collect datasets and groups; ``above``: addresses of the groups walked, so that no circle of links is run through."""
    import h5py

    for key in group:
        if isinstance(key, bytes):
            found.skipped.append((prefix + key.decode("utf-8", "backslashreplace"), "a name that is not UTF-8; rename it"))
            continue
        name = f"{prefix}{key}"
        if leads_outside(group.file, name):
            # Nothing outside the file that was named is opened.
            found.skipped.append((name, "a link into another file; name that file instead"))
            continue
        try:
            item = group[key]
        except LIBRARY_ERRORS as error:
            there = isinstance(group.get(key, getlink=True), h5py.HardLink)
            found.skipped.append((name, f"{'damaged' if there else 'a link that leads nowhere'}: {reason(error)}"))
            continue
        if isinstance(item, h5py.Group):
            address = _address(item)
            if name.count("/") > DEEPEST:
                found.skipped.append((name, f"groups within groups, more than {DEEPEST}; write the file anew with fewer"))
            elif address not in above:
                above.add(address)
                found.groups[name] = _attributes(item)
                _walk(item, f"{name}/", found, above)
        elif isinstance(item, h5py.Dataset):
            found.datasets[name] = item
            _note_scale(item, key, found)
        elif _was_dataset(item):
            raise OSError(f"{name}: damaged: values without a dataspace; restore the file")


def _was_dataset(item: Any) -> bool:
    """Tell whether what h5py takes for a named type says where its values lie: a dataset that has lost its dataspace."""
    import h5py

    return bool(h5py.h5o.get_info(item.id).hdr.mesg.present & _LAYOUT)


def _address(item: Any) -> int:
    import h5py

    return int(h5py.h5o.get_info(item.id).addr)


def _note_scale(dataset: Any, key: str, found: _Found) -> None:
    import h5py

    if h5py.h5ds.is_scale(dataset.id):
        address = _address(dataset)
        found.scales[address] = key
        if "_Netcdf4Dimid" in dataset.attrs:
            found.dimids[int(dataset.attrs["_Netcdf4Dimid"])] = address


def _axes(file: Any, dataset: Any, found: _Found) -> tuple[int | None, ...]:
    """Return per dimension the address of the scale that names it."""
    import h5py

    rank = len(dataset.shape or ())
    if "DIMENSION_LIST" in dataset.attrs:
        listed = dataset.attrs["DIMENSION_LIST"]
        axes = []
        for references in listed[:rank]:
            target = file[references[0]] if len(references) and references[0] else None
            axes.append(None if target is None else _address(target))
        return tuple(axes)
    if not h5py.h5ds.is_scale(dataset.id):
        return (None,) * rank
    own = _address(dataset)
    # A coordinate variable of several dimensions notes them by number; the scale itself is its first dimension.
    numbers = [int(n) for n in np.ravel(dataset.attrs.get("_Netcdf4Coordinates", ()))]
    if len(numbers) == rank:
        return tuple(found.dimids.get(n) for n in numbers)
    return (own, *((None,) * (rank - 1))) if rank else ()


def _entry(file: Any, path: str, dtype: np.dtype[Any], found: _Found) -> _Entry:
    dataset = found.datasets[path]
    axes = _axes(file, dataset, found)
    parent, slash, base = path.rpartition("/")
    name = f"{parent}{slash}{base.removeprefix(NOT_COORDINATE)}"
    return _Entry(path, name, dataset, dtype, axes, tuple(None if a is None else found.scales.get(a) for a in axes))


def _lengths(entries: list[_Entry]) -> dict[int, int]:
    """Return the length of every unlimited dimension: that of the longest variable that has it."""
    longest: dict[int, int] = {}
    for entry in entries:
        for address, n, most in zip(entry.axes, entry.dataset.shape or (), entry.dataset.maxshape or (), strict=False):
            if address is not None and most is None:
                longest[address] = max(n, longest.get(address, 0))
    return longest


def _variable(entry: _Entry, lengths: Mapping[int, int], spans: Mapping[str, tuple[str | None, ...]]) -> Variable:
    """Describe a dataset; ``lengths`` of unlimited dimensions, ``spans``: the dimensions of every dataset."""
    dataset = entry.dataset
    if dataset.shape is None:
        # No dataspace: an array without elements.
        return stored_variable(entry.name, entry.dtype, (0,), (None,), _attributes(dataset))
    shape = [
        n if address is None or most is not None else lengths[address]
        for n, most, address in zip(dataset.shape, dataset.maxshape, entry.axes, strict=True)
    ]
    # What grows is no character of a text, nor is what a coordinate describes.
    real = bool(shape) and (dataset.maxshape[-1] is None or has_coordinate(entry.name, entry.dimensions[-1], spans))
    return stored_variable(entry.name, entry.dtype, shape, entry.dimensions, _attributes(dataset), joined=not real)


def refusal(kind: str) -> str:
    """Say why a variable of a type is skipped."""
    readable = "text, and rows of numbers along one dimension" if kind == "variable-length" else "numbers and text"
    return f"values of {'an' if kind[0] in 'aeiou' else 'a'} {kind} type; aggarray reads {readable}"


def plain_dtype(dataset: Any) -> np.dtype[Any] | str:
    """Return the dtype of a dataset as it is stored, text of variable length as StringDType; or why it cannot be read."""
    import h5py

    try:
        dtype = dataset.dtype
    except LIBRARY_ERRORS as error:
        return f"a type that h5py does not know ({reason(error)})"
    if h5py.check_string_dtype(dtype) is not None:
        return np.dtype(dtype.str) if dtype.kind == "S" else np.dtypes.StringDType()
    if h5py.check_ref_dtype(dtype) is not None:
        return refusal("reference")
    if h5py.check_vlen_dtype(dtype) is not None:
        return refusal("variable-length")
    if dtype.names is not None:
        return refusal("compound")
    if dtype.subdtype is not None:
        return refusal("array")
    return np.dtype(dtype.str) if dtype.kind in "biufcmM" else refusal("opaque")


def _attributes(item: Any) -> dict[str, Any]:
    """Return the attributes of a group or dataset: text, lists of texts, scalars or arrays."""
    found = {}
    for name in item.attrs:
        if name in _INTERNAL:
            continue
        value = attribute(stored_attribute(item, name))
        if value is not None:
            found[name] = value
    return found


def stored_attribute(item: Any, name: str) -> Any:
    """Return an attribute as h5py has it, None for one of a type that it does not know; OSError where it is damaged."""
    try:
        return item.attrs[name]
    except LIBRARY_ERRORS as error:
        if _of_unknown_type(item, name):
            # It says nothing that CF knows.
            return None
        raise OSError(f"attribute {name!r}: {reason(error)}") from error


def _of_unknown_type(item: Any, name: str) -> bool:
    try:
        return item.attrs.get_id(name).dtype is None
    except LIBRARY_ERRORS as error:
        return isinstance(error, TypeError)


def attribute(value: Any) -> Any:
    """Return an attribute as the other formats give it, None where it is neither number nor text."""
    import h5py

    if value is None:
        return None
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else np.empty(0, value.dtype)
    if isinstance(value, bytes | str):
        return _text(value)
    array = np.asarray(value)
    if array.dtype.kind in "SUO":
        texts = [_text(v) for v in array.ravel().tolist() if isinstance(v, bytes | str)]
        if len(texts) != array.size:
            return None
        return texts[0] if len(texts) == 1 else texts
    if array.dtype.kind not in "biufc":
        return None
    array = array.astype(array.dtype.newbyteorder("="))
    return array.ravel()[0] if array.size == 1 else array


def _text(value: bytes | str) -> str:
    return decode_text(value).rstrip("\x00") if isinstance(value, bytes) else plain_text(str(value))
