"""Scan of an HDF5 file through h5py.

For files that `formats.hdf5.metadata` does not know or finds damaged, by the same rules: dimensions come from attached
dimension scales (netCDF-4's own conventions for them included), and have no name otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text, plain_text
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    Structure,
    Variable,
    error_text,
    has_coordinate,
    naming_errors,
    stored_variable,
    with_values,
)
from aggarray.formats.hdf5.links import is_external, is_pure_dimension, is_scale, leads_outside
from aggarray.formats.hdf5.metadata.conventions import INTERNAL
from aggarray.formats.hdf5.metadata.dimensions import nearest_scope
from aggarray.formats.hdf5.refusals import DANGLING, DEEPEST, MISNAMED, NO_SCALE, NOT_UTF8, TOO_DEEP, attribute_refusal, refusal
from aggarray.formats.hdf5.rows import as_rows, exceeds_limits, samples_dtype, sizes_of

#: How netCDF-4 stores a variable that is named like a dimension but is not its coordinate variable.
NOT_COORDINATE = "_nc4_non_coord_"

#: HDF5's mark of an object that says where its values lie, among those of all messages that it has.
_LAYOUT = 1 << 8


@dataclass(slots=True)
class _Walk:
    """What a walk through a file collects: datasets by name, attributes of groups, what is skipped and why.

    ``scales`` has (group, name) of dimension scales by their address in the file, ``dimids`` by netCDF-4's number; ``linked``:
    datasets by names that are soft links.
    """

    datasets: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    scales: dict[int, tuple[str, str]] = field(default_factory=dict)
    dimids: dict[int, int] = field(default_factory=dict)
    linked: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _DatasetEntry:
    """A readable dataset: its path and name, stored dtype; per dimension the address, name and group of its scale, if any."""

    path: str
    name: str
    dataset: Any
    dtype: np.dtype[Any]
    axes: tuple[int | None, ...]
    dimensions: tuple[str | None, ...]
    scopes: tuple[str, ...]


def scan_structure(path: str, file: Any, label: str, read: Callable[[Variable], np.ndarray | None]) -> Structure:
    """Return the structure of an open h5py file; ``label`` is its format, ``read`` gives the values of a variable."""
    found = _Walk()
    _walk(file, "", found, {_address(file)})
    # Under its own name an object comes first.
    found.datasets.update(found.linked)
    entries: list[_DatasetEntry] = []
    for name, dataset in found.datasets.items():
        with naming_errors(path, name):
            if is_pure_dimension(dataset):
                continue
            dtype = exceeds_limits(dataset) or samples_dtype(dataset) or plain_dtype(dataset)
            if isinstance(dtype, str):
                found.skipped.append((name, dtype))
            else:
                entries.append(_entry(file, name, dtype, found))
    if not entries and (damage := [f"{name}: {why}" for name, why in found.skipped if why.startswith("damaged:")]):
        raise OSError(f"{damage[0]}; restore the file")
    lengths = _lengths(entries)
    spans = {entry.name: entry.dimensions for entry in entries}
    places = set(found.scales.values())
    hidden = any(
        name is not None and nearest_scope(places, entry.name.rpartition("/")[0], name) != scope
        for entry in entries
        for name, scope in zip(entry.dimensions, entry.scopes, strict=True)
    )
    variables = []
    for entry in entries:
        with naming_errors(path, entry.path):
            variable = _variable(entry, lengths, spans, found)
            if hidden and entry.dataset.shape is not None:
                variable = replace(variable, scopes=entry.scopes[: len(variable.dimensions)])
            if samples_dtype(entry.dataset) is None:
                variables.append(variable)
            else:
                variables += as_rows(variable, sizes_of(path, entry.dataset), found.datasets)

    def read_named(variable: Variable) -> np.ndarray | None:
        """Return the values of a variable; errors name it."""
        with naming_errors(path, variable.name):
            return read(variable)

    filled = with_values(variables, read_named)
    borrowed = tuple(entry.name for entry in entries if is_external(entry.dataset.id))
    attrs = _attributes(file, "", found)
    return Structure(path, label, attrs, filled, found.groups, tuple(found.skipped), elsewhere=borrowed)


def _walk(group: Any, prefix: str, found: _Walk, above: set[int]) -> None:
    """Collect datasets and groups; ``above``: addresses of the groups walked, so that no circle of links is run through."""
    import h5py

    for key in group:
        if isinstance(key, bytes):
            found.skipped.append((prefix + key.decode("utf-8", "backslashreplace"), NOT_UTF8))
            continue
        name = f"{prefix}{key}"
        # promise: hdf5-scan-external-links
        if why := leads_outside(group.file, name):
            # Nothing outside the file that was named is opened.
            found.skipped.append((name, why))
            continue
        try:
            item = group[key]
        except LIBRARY_ERRORS as error:
            there = isinstance(group.get(key, getlink=True), h5py.HardLink)
            found.skipped.append((name, f"damaged: {error_text(error)}" if there else DANGLING))
            continue
        if isinstance(group.get(key, getlink=True), h5py.SoftLink):
            # What is in a group is there under the group's own name.
            found.linked.update({name: item} if isinstance(item, h5py.Dataset) else {})
        elif isinstance(item, h5py.Group):
            address = _address(item)
            if name.count("/") > DEEPEST:
                found.skipped.append((name, TOO_DEEP))
            elif address not in above:
                above.add(address)
                found.groups[name] = _attributes(item, name, found)
                _walk(item, f"{name}/", found, above)
        elif isinstance(item, h5py.Dataset):
            found.datasets[name] = item
            _note_scale(item, prefix[:-1], key, found)
        # promise: hdf5-lost-dataspace
        elif _was_dataset(item):
            raise OSError(f"{name}: damaged: values without a dataspace; restore the file")


def _was_dataset(item: Any) -> bool:
    """Tell whether what h5py takes for a named type says where its values lie: a dataset that has lost its dataspace."""
    import h5py

    return bool(h5py.h5o.get_info(item.id).hdr.mesg.present & _LAYOUT)


def _address(item: Any) -> int:
    import h5py

    return int(h5py.h5o.get_info(item.id).addr)


def _note_scale(dataset: Any, group: str, key: str, found: _Walk) -> None:

    if is_scale(dataset):
        address = _address(dataset)
        found.scales.setdefault(address, (group, key.removeprefix(NOT_COORDINATE)))
        if "_Netcdf4Dimid" in dataset.attrs:
            found.dimids[int(dataset.attrs["_Netcdf4Dimid"])] = address


def _axes(file: Any, dataset: Any, found: _Walk) -> tuple[int | None, ...]:
    """Return per dimension the address of the scale that names it."""

    rank = len(dataset.shape or ())
    listed = _scales_of(dataset)
    if listed is not None:
        addresses = [_referred(file, dataset, reference, found) if reference else None for reference in listed[:rank]]
        return (*addresses, *(None,) * (rank - len(addresses)))
    if not is_scale(dataset):
        return (None,) * rank
    own = _address(dataset)
    # A coordinate variable of several dimensions notes them by number; the scale itself is its first dimension.
    numbers = [int(n) for n in np.ravel(dataset.attrs.get("_Netcdf4Coordinates", ()))]
    if len(numbers) == rank:
        return tuple(found.dimids.get(n) for n in numbers)
    return (own, *((None,) * (rank - 1))) if rank else ()


def _referred(file: Any, dataset: Any, reference: Any, found: _Walk) -> int | None:
    """Return the address of the object of a reference; None where no object is, as after a scale was deleted: that is noted."""
    try:
        return _address(file[reference])
    except LIBRARY_ERRORS:
        if any(why.startswith("damaged:") for _, why in found.skipped):
            raise  # the scale may be there, and damaged
        found.skipped.append((f"{dataset.name.lstrip('/')}:DIMENSION_LIST", NO_SCALE))
        return None


def _scales_of(dataset: Any) -> list[Any] | None:
    """Return a reference to the first scale of each dimension, None for one without; None where there is no list of them."""
    import h5py

    if "DIMENSION_LIST" not in dataset.attrs:
        return None
    dtype = dataset.attrs.get_id("DIMENSION_LIST").dtype
    if h5py.check_ref_dtype(dtype) is h5py.Reference:
        # As files converted from HDF4 have it: one reference a dimension.
        return list(np.ravel(dataset.attrs["DIMENSION_LIST"]))
    inner = h5py.check_vlen_dtype(dtype)
    if inner is None or h5py.check_ref_dtype(inner) is not h5py.Reference:
        return None
    return [references[0] if len(references) else None for references in dataset.attrs["DIMENSION_LIST"]]


def _entry(file: Any, path: str, dtype: np.dtype[Any], found: _Walk) -> _DatasetEntry:
    dataset = found.datasets[path]
    axes = _axes(file, dataset, found)
    parent, slash, base = path.rpartition("/")
    name = f"{parent}{slash}{base.removeprefix(NOT_COORDINATE)}"
    scales = [None if a is None else found.scales.get(a) for a in axes]
    names, groups = tuple(s and s[1] for s in scales), tuple("" if s is None else s[0] for s in scales)
    return _DatasetEntry(path, name, dataset, dtype, axes, names, groups)


def _lengths(entries: list[_DatasetEntry]) -> dict[int, int]:
    """Return the length of every unlimited dimension: that of the longest variable that has it."""
    longest: dict[int, int] = {}
    for entry in entries:
        for address, n, most in zip(entry.axes, entry.dataset.shape or (), entry.dataset.maxshape or (), strict=False):
            if address is not None and most is None:
                longest[address] = max(n, longest.get(address, 0))
    return longest


def _variable(
    entry: _DatasetEntry, lengths: Mapping[int, int], spans: Mapping[str, tuple[str | None, ...]], found: _Walk
) -> Variable:
    """Describe a dataset; ``lengths`` of unlimited dimensions, ``spans``: the dimensions of every dataset."""
    dataset, attrs = entry.dataset, _attributes(entry.dataset, entry.name, found)
    if dataset.shape is None:
        # No dataspace: an array without elements.
        return stored_variable(entry.name, entry.dtype, (0,), (None,), attrs)
    shape = [
        n if address is None or most is not None else lengths[address]
        for n, most, address in zip(dataset.shape, dataset.maxshape, entry.axes, strict=True)
    ]
    # What grows is no character of a text, nor is what a coordinate describes.
    real = bool(shape) and (dataset.maxshape[-1] is None or has_coordinate(entry.name, entry.dimensions[-1], spans))
    return stored_variable(entry.name, entry.dtype, shape, entry.dimensions, attrs, joined=not real)


def plain_dtype(dataset: Any) -> np.dtype[Any] | str:
    """Return the dtype of a dataset as it is stored, text of variable length as StringDType; or why it cannot be read."""
    import h5py

    try:
        dtype = dataset.dtype
    except LIBRARY_ERRORS:
        return refusal(_word_of(dataset.id.get_type()))
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
    if dtype.itemsize > (16 if dtype.kind == "c" else 8) and dtype.kind in "fc":
        return refusal(f"{8 * dtype.itemsize}-bit floating-point" if dtype.kind == "f" else "complex")
    return np.dtype(dtype.str) if dtype.kind in "biufcmM" else refusal("opaque")


def _attributes(item: Any, path: str, found: _Walk) -> dict[str, Any]:
    """Return the attributes of a group or dataset, text, lists of texts, scalars or arrays; others are noted in ``found``."""
    shown = {}
    for name in item.attrs:
        if name in INTERNAL:
            continue
        if isinstance(name, bytes):
            shown_as = name.decode("utf-8", "backslashreplace")
            found.skipped.append((f"{path}:{shown_as}", attribute_refusal(MISNAMED)))
            continue
        try:
            what = _left_out(item, name)
            value = attribute(item.attrs[name]) if what == "" else None
        except LIBRARY_ERRORS as error:
            # promise: hdf5-damaged-attribute
            raise OSError(f"attribute {name!r}: {error_text(error)}") from error
        if what:
            found.skipped.append((f"{path}:{name}", attribute_refusal(what)))
        elif value is not None:
            shown[name] = value
    return shown


def _left_out(item: Any, name: str) -> str | None:
    """Return the word for the type of an attribute that is left out, "" for one that is read, None for references.

    h5py is not asked for values of types that it does not hold: it crashes over some.
    """
    import h5py

    h5t = h5py.h5t
    kind = item.attrs.get_id(name).get_type()
    if isinstance(kind, h5t.TypeReferenceID):
        return None if kind.equal(h5t.STD_REF_OBJ) else "reference"
    if isinstance(kind, h5t.TypeVlenID):
        return None if kind.get_super().equal(h5t.STD_REF_OBJ) else "variable-length"
    if isinstance(kind, h5t.TypeStringID):
        return ""
    word = _word_of(kind)
    if word in ("array", "opaque", "time"):
        return word
    try:
        dtype = kind.dtype
    except (TypeError, ValueError):
        return word  # h5py knows no dtype
    plain = (dtype.kind in "biuf" and dtype.itemsize <= 8) or (dtype.kind == "c" and dtype.itemsize <= 16)
    return "" if plain else word


def _word_of(kind: Any) -> str:
    """Return the word for a datatype, of `refusal`."""
    from h5py import h5t

    words = {
        **{h5t.TypeCompoundID: "compound", h5t.TypeArrayID: "array", h5t.TypeOpaqueID: "opaque", h5t.TypeTimeID: "time"},
        **{h5t.TypeReferenceID: "reference", h5t.TypeVlenID: "variable-length"},
        h5t.TypeFloatID: f"{8 * kind.get_size()}-bit floating-point",
        h5t.TypeIntegerID: f"{8 * kind.get_size()}-bit integer",
    }
    return next((word for cls, word in words.items() if isinstance(kind, cls)), "complex")


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
