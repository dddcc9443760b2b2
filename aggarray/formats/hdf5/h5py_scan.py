"""Scan by h5py of HDF5 files that the metadata reader does not support.

Both scanners follow the same rules: dimensions come from attached dimension scales, including the conventions of netCDF-4, and
have no name otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text, plain_text
from aggarray.dataclass import dataclass, field, replace
from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats.base import Structure, Variable, has_coordinate, naming_errors, stored_variable, with_values
from aggarray.formats.hdf5.h5py_files import is_external, is_pure_dimension, is_scale, leads_outside
from aggarray.formats.hdf5.metadata.attributes import INTERNAL
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE, nearest_scope, with_flags
from aggarray.formats.hdf5.metadata.types import Members, members_of
from aggarray.formats.hdf5.refusals import DANGLING, DEEPEST, MISNAMED, NO_SCALE, NOT_UTF8, TOO_DEEP, attribute_refusal, refusal
from aggarray.formats.hdf5.rows import exceeds_limits, ragged_variables, samples_dtype, sizes_of
from aggarray.formats.library_errors import error_text

#: Bit of the data layout message among the messages that are present in an object header.
_LAYOUT = 1 << 8


@dataclass(slots=True)
class _Walk:
    """Datasets by name, attributes of groups, and skipped items.

    ``scales``: (group, name) of dimension scales by their address in the file; ``dimids``: addresses by netCDF-4's dimension
    number; ``linked``: datasets by the names of soft links.
    """

    datasets: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    scales: dict[int, tuple[str, str]] = field(default_factory=dict)
    dimids: dict[int, int] = field(default_factory=dict)
    linked: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _DatasetEntry:
    """Readable dataset with the scale of each dimension, if any."""

    path: str
    name: str
    dataset: Any
    dtype: np.dtype[Any]
    axes: tuple[int | None, ...]
    dimensions: tuple[str | None, ...]
    scopes: tuple[str, ...]


def scan_structure(path: str, file: Any, label: str, read: Callable[[Variable], np.ndarray | None]) -> Structure:
    """Return the structure of an open h5py file; ``label``: its format."""
    walk = _Walk()
    _walk(file, "", walk, {_address(file)})
    # Datasets under their own names come first.
    walk.datasets.update(walk.linked)
    entries: list[_DatasetEntry] = []
    for name, dataset in walk.datasets.items():
        with naming_errors(path, name):
            if is_pure_dimension(dataset):
                continue
            dtype = exceeds_limits(dataset) or samples_dtype(dataset) or plain_dtype(dataset)
            if isinstance(dtype, str):
                walk.skipped.append((name, dtype))
            else:
                entries.append(_entry(file, name, dtype, walk))
    if not entries and (damage := [f"{name}: {why}" for name, why in walk.skipped if why.startswith("damaged:")]):
        raise OSError(f"{damage[0]}; restore the file")

    def read_named(variable: Variable) -> np.ndarray | None:
        with naming_errors(path, variable.name):
            return read(variable)

    filled = with_values(_variables(path, entries, walk), read_named)
    external = tuple(entry.name for entry in entries if is_external(entry.dataset.id))
    attrs = _attributes(file, "", walk)
    return Structure(path, label, attrs, filled, walk.groups, tuple(walk.skipped), external_files=external)


def _walk(group: Any, prefix: str, walk: _Walk, visited: set[int]) -> None:
    """Collect datasets and groups; ``visited`` ends cycles of links."""
    import h5py

    for key in group:
        if isinstance(key, bytes):
            walk.skipped.append((prefix + key.decode("utf-8", "backslashreplace"), NOT_UTF8))
            continue
        name = f"{prefix}{key}"
        # promise: hdf5-scan-external-links
        if why := leads_outside(group.file, name):
            # Other files are not opened.
            walk.skipped.append((name, why))
            continue
        try:
            item = group[key]
        except LIBRARY_ERRORS as error:
            is_hard = isinstance(group.get(key, getlink=True), h5py.HardLink)
            walk.skipped.append((name, f"damaged: {error_text(error)}" if is_hard else DANGLING))
            continue
        if isinstance(group.get(key, getlink=True), h5py.SoftLink):
            # The contents of a group are collected under the group's own name.
            walk.linked.update({name: item} if isinstance(item, h5py.Dataset) else {})
        elif isinstance(item, h5py.Group):
            address = _address(item)
            if name.count("/") > DEEPEST:
                walk.skipped.append((name, TOO_DEEP))
            elif address not in visited:
                visited.add(address)
                walk.groups[name] = _attributes(item, name, walk)
                _walk(item, f"{name}/", walk, visited)
        elif isinstance(item, h5py.Dataset):
            walk.datasets[name] = item
            _note_scale(item, prefix[:-1], key, walk)
        # h5py opens a dataset without its dataspace as a named type.
        # promise: hdf5-lost-dataspace
        elif h5py.h5o.get_info(item.id).hdr.mesg.present & _LAYOUT:
            raise OSError(f"{name}: damaged: values without a dataspace; restore the file")


def _address(item: Any) -> int:
    import h5py

    return int(h5py.h5o.get_info(item.id).addr)


def _note_scale(dataset: Any, group: str, key: str, walk: _Walk) -> None:
    if is_scale(dataset):
        address = _address(dataset)
        walk.scales.setdefault(address, (group, key.removeprefix(NOT_COORDINATE)))
        if "_Netcdf4Dimid" in dataset.attrs:
            walk.dimids[int(dataset.attrs["_Netcdf4Dimid"])] = address


def _axes(file: Any, dataset: Any, walk: _Walk) -> tuple[int | None, ...]:
    rank = len(dataset.shape or ())
    references = _scales_of(dataset)
    if references is not None:
        addresses = [_referenced(file, dataset, reference, walk) if reference else None for reference in references[:rank]]
        return (*addresses, *(None,) * (rank - len(addresses)))
    if not is_scale(dataset):
        return (None,) * rank
    # A coordinate variable of several dimensions lists them by number; the scale itself is its first dimension.
    numbers = [int(n) for n in np.ravel(dataset.attrs.get("_Netcdf4Coordinates", ()))]
    if len(numbers) == rank:
        return tuple(walk.dimids.get(n) for n in numbers)
    return (_address(dataset), *((None,) * (rank - 1))) if rank else ()


def _referenced(file: Any, dataset: Any, reference: Any, walk: _Walk) -> int | None:
    """Return the address of a referenced object; record a missing one."""
    try:
        return _address(file[reference])
    except LIBRARY_ERRORS:
        if any(why.startswith("damaged:") for _, why in walk.skipped):
            raise  # the scale may exist but be damaged
        walk.skipped.append((f"{dataset.name.lstrip('/')}:DIMENSION_LIST", NO_SCALE))
        return None


def _scales_of(dataset: Any) -> list[Any] | None:
    """Return references to the first scales; None without DIMENSION_LIST."""
    import h5py

    if "DIMENSION_LIST" not in dataset.attrs:
        return None
    dtype = dataset.attrs.get_id("DIMENSION_LIST").dtype
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        # Files converted from HDF4 have one reference per dimension.
        return list(np.ravel(dataset.attrs["DIMENSION_LIST"]))
    inner = h5py.check_vlen_dtype(dtype)
    if inner is None or h5py.check_ref_dtype(inner) is not h5py.Reference:
        return None
    return [references[0] if len(references) else None for references in dataset.attrs["DIMENSION_LIST"]]


def _entry(file: Any, path: str, dtype: np.dtype[Any], walk: _Walk) -> _DatasetEntry:
    dataset = walk.datasets[path]
    axes = _axes(file, dataset, walk)
    parent, slash, base = path.rpartition("/")
    name = f"{parent}{slash}{base.removeprefix(NOT_COORDINATE)}"
    scales = [None if a is None else walk.scales.get(a) for a in axes]
    names, groups = tuple(s and s[1] for s in scales), tuple("" if s is None else s[0] for s in scales)
    return _DatasetEntry(path, name, dataset, dtype, axes, names, groups)


def _lengths(entries: list[_DatasetEntry]) -> dict[int, int]:
    longest: dict[int, int] = {}
    for entry in entries:
        for address, n, limit in zip(entry.axes, entry.dataset.shape or (), entry.dataset.maxshape or (), strict=False):
            if address is not None and limit is None:
                longest[address] = max(n, longest.get(address, 0))
    return longest


def _variables(path: str, entries: list[_DatasetEntry], walk: _Walk) -> list[Variable]:
    lengths = _lengths(entries)
    spans = {entry.name: entry.dimensions for entry in entries}
    scales = set(walk.scales.values())
    hidden = any(
        name is not None and nearest_scope(scales, entry.name.rpartition("/")[0], name) != scope
        for entry in entries
        for name, scope in zip(entry.dimensions, entry.scopes, strict=True)
    )
    variables: list[Variable] = []
    for entry in entries:
        with naming_errors(path, entry.path):
            variable = _variable(entry, lengths, spans, walk)
            if hidden and entry.dataset.shape is not None:
                variable = replace(variable, scopes=entry.scopes[: len(variable.dimensions)])
            if samples_dtype(entry.dataset) is None:
                variables.append(variable)
            else:
                variables += ragged_variables(variable, sizes_of(path, entry.dataset), walk.datasets)
    return variables


def _variable(
    entry: _DatasetEntry, lengths: Mapping[int, int], spans: Mapping[str, tuple[str | None, ...]], walk: _Walk
) -> Variable:
    dataset = entry.dataset
    attrs = with_flags(_attributes(dataset, entry.name, walk), _members(dataset), entry.dtype)
    if dataset.shape is None:
        # A dataset without a dataspace is an array without elements.
        return stored_variable(entry.name, entry.dtype, (0,), (None,), attrs)
    shape = [
        n if address is None or limit is not None else lengths[address]
        for n, limit, address in zip(dataset.shape, dataset.maxshape, entry.axes, strict=True)
    ]
    # An unlimited dimension or one with a coordinate variable is not a string length.
    real = bool(shape) and (dataset.maxshape[-1] is None or has_coordinate(entry.name, entry.dimensions[-1], spans))
    return stored_variable(entry.name, entry.dtype, shape, entry.dimensions, attrs, joined=not real)


def _members(dataset: Any) -> Members:
    """Return the members of an enumeration, none for other types."""
    import h5py

    return members_of(h5py.check_enum_dtype(dataset.dtype) or {})


def plain_dtype(dataset: Any) -> np.dtype[Any] | str:
    """Return the stored dtype, or the reason why it cannot be read."""
    import h5py

    try:
        dtype = dataset.dtype
    except LIBRARY_ERRORS:
        return refusal(_type_name(dataset.id.get_type()))
    if h5py.check_string_dtype(dtype) is not None:
        return np.dtype(dtype.str) if dtype.kind == "S" else np.dtypes.StringDType()
    if dtype.kind == "c":
        return np.dtype(dtype.str) if dtype.itemsize <= 16 else refusal("complex")
    readable = dtype.kind in "biumM" or (dtype.kind == "f" and dtype.itemsize <= 8)
    return np.dtype(dtype.str) if readable else refusal(_type_name(dataset.id.get_type()))


def _attributes(item: Any, path: str, walk: _Walk) -> dict[str, Any]:
    attributes = {}
    for name in item.attrs:
        if name in INTERNAL:
            continue
        if isinstance(name, bytes):
            escaped = name.decode("utf-8", "backslashreplace")
            walk.skipped.append((f"{path}:{escaped}", attribute_refusal(MISNAMED)))
            continue
        try:
            type_name = _unsupported_type(item, name)
            value = attribute_value(item.attrs[name]) if type_name == "" else None
        except LIBRARY_ERRORS as error:
            # promise: hdf5-damaged-attribute
            raise OSError(f"attribute {name!r}: {error_text(error)}") from error
        if type_name:
            walk.skipped.append((f"{path}:{name}", attribute_refusal(type_name)))
        elif value is not None:
            attributes[name] = value
    return attributes


def _unsupported_type(item: Any, name: str) -> str | None:
    """Return the type name of a skipped attribute, "" for one that is read.

    The result is None for object references. h5py crashes when it reads attributes of some unsupported types.
    """
    import h5py

    h5t = h5py.h5t
    datatype = item.attrs.get_id(name).get_type()
    if isinstance(datatype, h5t.TypeReferenceID):
        return None if datatype.equal(h5t.STD_REF_OBJ) else "reference"
    if isinstance(datatype, h5t.TypeVlenID):
        return None if datatype.get_super().equal(h5t.STD_REF_OBJ) else "variable-length"
    if isinstance(datatype, h5t.TypeStringID):
        return ""
    type_name = _type_name(datatype)
    if type_name in ("array", "opaque", "time"):
        return type_name
    try:
        dtype = datatype.dtype
    except (TypeError, ValueError):
        return type_name  # h5py has no dtype for it
    plain = (dtype.kind in "biuf" and dtype.itemsize <= 8) or (dtype.kind == "c" and dtype.itemsize <= 16)
    return "" if plain else type_name


def _type_name(datatype: Any) -> str:
    from h5py import h5t

    names = {
        **{h5t.TypeCompoundID: "compound", h5t.TypeArrayID: "array", h5t.TypeOpaqueID: "opaque", h5t.TypeTimeID: "time"},
        **{h5t.TypeReferenceID: "reference", h5t.TypeVlenID: "variable-length"},
        h5t.TypeFloatID: f"{8 * datatype.get_size()}-bit floating-point",
        h5t.TypeIntegerID: f"{8 * datatype.get_size()}-bit integer",
    }
    return next((name for cls, name in names.items() if isinstance(datatype, cls)), "complex")


def attribute_value(value: Any) -> Any:
    """Return a number or text in the form of other formats, else None."""
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
