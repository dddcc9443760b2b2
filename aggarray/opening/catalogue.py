"""Catalogues as sources: rows of an address and attributes of its files.

Rows are dictionaries, pairs of an address and a dictionary, tables (of pandas, polars or intake-esm), and items of STAC. No
library of catalogues is imported. The attributes of a row replace those in the header of a file. A `Structure` has them among
its own, with their names in ``given``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aggarray.aggregate.join import same_attribute
from aggarray.dataclass import NamedTuple, replace
from aggarray.errors import AggregationError
from aggarray.formats.base import Attributes, Structure
from aggarray.scan.discovery import find_files
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.files import absolute, given_path, listed

#: Names of columns that hold addresses, in the order of preference.
ADDRESSES = ("path", "uri", "url", "href", "zstore", "address")
#: Most rows of a catalogue whose addresses an error repeats, and most of its names.
_MOST_NAMES = 30
#: Media types of assets that hold arrays: netCDF, HDF5, Zarr, references of kerchunk; and those that do not tell.
_MEDIA = re.compile(r"application/(x-|vnd[.+])?(netcdf[34]?|hdf5?|zarr|kerchunk)\b", re.IGNORECASE)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")
#: Suffixes of addresses of arrays, where an asset has neither media type nor roles.
_SUFFIX = re.compile(r"\.(nc[34]?|cdf|netcdf|h5|hdf5?|he5|zarr)(/|\.zip)?(\?.*)?$", re.IGNORECASE)
#: Roles of assets that describe data.
_DESCRIBING = ("thumbnail", "overview", "metadata", "visual")
#: Prefixes of STAC extensions whose fields are global attributes of files.
_PREFIX = re.compile(r"(cmip|cordex)[0-9]*:(?=.)", re.IGNORECASE)

#: Attributes by file.
Given = Mapping[str, Attributes]
NOTHING_GIVEN: Given = {}


class Row(NamedTuple):
    """An address and the attributes of the files that it names."""

    address: Any
    attrs: Attributes


def source_items(source: Any) -> tuple[list[Any], list[Row]]:
    """Return the paths that a source names, and its rows if it is a catalogue.

    Raises AggregationError unless all are paths, for a row without an address, and for a table without a column of addresses.

    >>> source_items(["a.nc"]), source_items([{"path": "a.nc", "source_id": "X", "version": None}])[1]
    ((['a.nc'], []), [Row(address='a.nc', attrs={'source_id': 'X'})])
    """
    if _is_path(source):
        return listed(source), []
    if _is_catalogue(source):
        items = [source]
    else:
        try:
            items = list(source)  # a generator is read once
        except TypeError:
            return listed(source), []
        if not any(not _is_path(item) and _is_catalogue(item) for item in items):
            return listed(items), []
    rows = [row for number, item in enumerate(items) for row in _rows(item, number)]
    return listed([row.address for row in rows]), rows


def _is_path(item: Any) -> bool:
    return isinstance(item, str | bytes | os.PathLike)


def _is_catalogue(item: Any) -> bool:
    """Return whether an object is a row, a table, or items of STAC."""
    if isinstance(item, Mapping):
        return True
    return _is_pair(item) or _is_table(item) or _is_item(item) or hasattr(item, "esmcat")


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and _is_path(item[0]) and isinstance(item[1], Mapping)


def _is_table(item: Any) -> bool:
    return hasattr(item, "columns") and hasattr(item, "__getitem__") and not isinstance(item, type)


def _is_item(item: Any) -> bool:
    """Return whether an object is an item of STAC, or several, of a library."""
    return callable(getattr(item, "to_dict", None)) and (hasattr(item, "assets") or type(item).__name__ == "ItemCollection")


def _rows(item: Any, number: int) -> Iterator[Row]:
    """Yield the rows of an item of a source; ``number``: its position."""
    if _is_path(item):
        yield Row(item, {})
    elif _is_pair(item):
        yield Row(item[0], _attributes(item[1].items()))
    elif hasattr(item, "esmcat"):
        yield from _table_rows(item.df, item.esmcat.assets.column_name, item.esmcat.assets.format_column_name)
    elif _is_table(item):
        yield from _table_rows(item)
    elif _is_item(item):
        yield from _rows(_plain_item(item), number)
    elif isinstance(item, Mapping) and item.get("type") == "FeatureCollection":
        for position, feature in enumerate(item.get("features") or ()):
            yield from _rows(feature, position)
    elif isinstance(item, Mapping) and "assets" in item:
        yield from _asset_rows(item)
    elif isinstance(item, Mapping):
        name = next((name for name in ADDRESSES if not _is_missing(item.get(name))), None)
        if name is None:
            keys = _names(item)
            hint = f"name its address {' or '.join(map(repr, ADDRESSES))}"
            raise AggregationError(f"row {number} has no address: its keys are {keys}", hint=hint)
        yield Row(_address(item[name], f"row {number}", name), _attributes((k, v) for k, v in item.items() if k != name))
    else:
        what = f"row {number} is {' '.join(repr(item).split()):.60} ({type(item).__name__})"
        raise AggregationError(what, hint="give a path, a dictionary, or a pair of a path and a dictionary")


def _names(names: Iterable[Any]) -> str:
    texts = list(map(str, names))
    return (", ".join(texts[:_MOST_NAMES]) + (", ..." if len(texts) > _MOST_NAMES else "")) or "none"


def _address(value: Any, row: str, name: str) -> Any:
    if not _is_path(value) or not value:
        what = f"{row} has no address: {name} is {' '.join(repr(value).split()):.60} ({type(value).__name__})"
        raise AggregationError(what, hint="give a path or an address, as text")
    return value


def _is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, or a missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _attributes(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return {str(name): _value(value) for name, value in pairs if not _is_missing(value)}


def _value(value: Any) -> Any:
    """Return a cell as the value of an attribute: text, a number, or several."""
    if type(value) is str or type(value) in (int, float):
        return value
    if isinstance(value, bool):
        return str(value).lower()  # attributes of netCDF have no booleans: as in _Unsigned
    if isinstance(value, Mapping) or (isinstance(value, list | tuple | set | frozenset) and any(map(_is_nested, value))):
        import json

        return json.dumps(value, default=str, sort_keys=True)
    if isinstance(value, list | tuple | set | frozenset):
        import numpy as np

        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        if items and all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
            numbers = np.array(items)
            return numbers if numbers.dtype.kind in "iuf" else list(map(str, items))
        return [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
    if hasattr(value, "dtype"):  # of NumPy
        return value if value.dtype.kind in "iufSU" else _value(value.tolist())
    return str(value)


def _is_nested(item: Any) -> bool:
    return isinstance(item, Mapping | list | tuple)


def _table_rows(table: Any, column: str | None = None, format_column: str | None = None) -> Iterator[Row]:
    """Yield the rows of a table; ``column``: of addresses, None to find it."""
    names = list(table.columns)
    column = next((name for name in ADDRESSES if name in names), None) if column is None else column
    if column is None or column not in names:
        wanted = ADDRESSES if column is None else (column,)
        hint = f"name the column of addresses {' or '.join(map(repr, wanted))}"
        raise AggregationError(f"the table has no column of addresses: its columns are {_names(names)}", hint=hint)
    if len(set(names)) < len(names):
        hint = "rename or drop one of them"
        raise AggregationError(f"the table has columns of the same name: {_names(names)}", hint=hint)
    addresses = _cells(table[column])
    columns = [_integers(_cells(table[name])) for name in names if name not in (column, format_column)]
    texts = [str(name) for name in names if name not in (column, format_column)]
    for number, (address, *cells) in enumerate(zip(addresses, *columns, strict=True)):
        if _is_missing(address):
            keys = _names(text for text, cell in zip(texts, cells, strict=True) if not _is_missing(cell))
            what = f"row {number} has no address: {column} is empty; its other keys are {keys}"
            raise AggregationError(what, hint="drop the row, or give its address")
        yield Row(_address(address, f"row {number}", column), _attributes(zip(texts, cells, strict=True)))


def _cells(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column.to_list())


def _integers(cells: list[Any]) -> list[Any]:
    """Return whole numbers that are floats because of empty cells."""
    if not any(type(cell) is float and cell != cell for cell in cells):
        return cells
    if not all(_is_missing(cell) or (type(cell) is float and cell.is_integer()) for cell in cells):
        return cells
    return [None if _is_missing(cell) else int(cell) for cell in cells]


def _plain_item(item: Any) -> Mapping[str, Any]:
    """Return a STAC item as a dictionary, with absolute addresses."""
    if not hasattr(item, "assets"):  # several
        return {"type": "FeatureCollection", "features": list(item)}
    assets = {}
    for name, asset in item.assets.items():
        resolve = getattr(asset, "get_absolute_href", None)
        own = asset.to_dict()
        assets[name] = {**own, "href": (resolve() if callable(resolve) else None) or own.get("href")}
    return {"type": "Feature", "id": item.id, "properties": dict(item.properties), "assets": assets}


def _asset_rows(item: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for each asset of a STAC item that holds arrays."""
    assets = {name: asset for name, asset in _assets(item).items() if asset.get("href")}
    faults = {name: _asset_fault(asset) for name, asset in assets.items()}
    arrays = [name for name, fault in faults.items() if not fault]
    # Other files of arrays, such as masks, lie beside the data.
    chosen = [name for name in arrays if "data" in _roles(assets[name])] or arrays
    if not chosen:
        listed = ", ".join(f"{name} ({fault})" for name, fault in list(faults.items())[:_MOST_NAMES]) or "none"
        hint = "give rows of (address, attributes) instead, if one of them is a file of netCDF, HDF5 or Zarr"
        raise AggregationError(f"item {item.get('id')!r} has no asset of arrays: its assets are {listed}", hint=hint)
    common = _fields(item.get("properties") or {})
    for name in chosen:
        own = {key: value for key, value in _fields(assets[name]).items() if key in common or _PREFIX.match(key)}
        yield Row(_from_item(assets[name]["href"], item), _attributes(_renamed({**common, **own})))


def _assets(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the assets of a STAC item; raise AggregationError for others."""
    assets, properties = item["assets"] or {}, item.get("properties") or {}
    are_assets = isinstance(assets, Mapping) and all(isinstance(asset, Mapping) for asset in assets.values())
    if not are_assets or not isinstance(properties, Mapping):
        name = "properties" if are_assets else "assets"
        what = f"item {item.get('id')!r} is not a valid STAC item: its {name} are {' '.join(repr(item[name]).split()):.60}"
        raise AggregationError(what, hint="give assets as {name: {'href': ...}}, and properties as {name: value}")
    return assets


def _roles(asset: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the roles of an asset, in lower case; a text is one role."""
    roles = asset.get("roles") or ()
    return tuple(str(role).lower() for role in ([roles] if isinstance(roles, str) else roles))


def _asset_fault(asset: Mapping[str, Any]) -> str:
    """Return why an asset of STAC holds no arrays, "" if it may."""
    roles, media = _roles(asset), str(asset.get("type") or "")
    if "data" not in roles and any(role in roles for role in _DESCRIBING):
        return f"role {', '.join(roles)}"
    if _MEDIA.match(media):
        return ""
    if media.lower() not in _UNKNOWN:
        return media
    is_named = "data" in roles or (not roles and _SUFFIX.search(str(asset["href"])))
    return "" if is_named else f"no media type, role {', '.join(roles)}" if roles else "neither media type nor role"


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in fields.items() if not _is_missing(value)}


def _renamed(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield fields, those of CMIP and CORDEX by the names of their attributes."""
    for name, value in fields.items():
        plain = _PREFIX.sub("", name)
        if plain == name or plain not in fields:
            yield plain, value


def _from_item(href: str, item: Mapping[str, Any]) -> str:
    """Return the address of an asset; a relative one is beside its item."""
    links = item.get("links") or ()
    own = next((str(link.get("href") or "") for link in links if link.get("rel") == "self"), "")
    if "://" in href or os.path.isabs(href) or not ("://" in own or os.path.isabs(own)):
        return href
    from urllib.parse import urljoin

    if "://" in own and not own.startswith(("http://", "https://", "file://")):  # urljoin knows no others
        scheme, _, rest = own.partition("://")
        return f"{scheme}://{urljoin(f'http://{rest}', href).removeprefix('http://')}"
    return urljoin(own, href)


def given_attributes(rows: Iterable[Row], paths: Iterable[str]) -> Given:
    """Return the attributes of files; ``paths``: those that the rows name.

    Raises AggregationError if two rows give different values to a file.
    """
    files, given, of_row = set(paths), dict[str, Attributes](), dict[str, int]()
    for number, (address, attrs) in enumerate(rows):
        if not attrs:
            continue
        path = absolute(given_path(address))
        for name in (path,) if path in files else find_files([address]):
            known = given.setdefault(name, attrs)
            first = of_row.setdefault(name, number)
            if known is not attrs and not _same(known, attrs):
                differing = [n for n in {**known, **attrs} if not same_attribute(known.get(n), attrs.get(n))]
                values = ", ".join(f"{n}: {known.get(n)!r} and {attrs.get(n)!r}" for n in differing[:3])
                what = f"rows {first} and {number} give different attributes to one file ({values})"
                raise AggregationError(what, path=name, hint="give each file once, or the same attributes")
    return given


def _same(one: Attributes, other: Attributes) -> bool:
    return one.keys() == other.keys() and all(same_attribute(value, other[name]) for name, value in one.items())


def with_given(structure: Structure, attrs: Attributes | None) -> Structure:
    """Return a structure with given attributes in place of its own."""
    if not attrs:
        return structure
    groups = {path: _replaced(own, attrs) for path, own in structure.groups.items()}
    names = tuple(dict.fromkeys([*structure.given, *attrs]))
    result: Structure = replace(structure, attrs={**structure.attrs, **attrs}, groups=groups, given=names)
    return result


def _replaced(own: Attributes, attrs: Attributes) -> Attributes:
    """Return attributes of a group, which would hide those of the file."""
    return {name: attrs.get(name, value) for name, value in own.items()} if not attrs.keys().isdisjoint(own) else own


def table_with_given(table: StructureTable, given: Given) -> StructureTable:
    """Return a table of structures with given attributes."""
    return StructureTable(with_given(s, given.get(s.uri)) for s in table) if given else table


def kept_attributes(structure: Structure) -> Attributes:
    """Return the attributes of a structure that were given."""
    return {name: structure.attrs[name] for name in structure.given if name in structure.attrs}


def is_given_anew(structure: Structure, attrs: Attributes | None) -> bool:
    """Return whether a row gives other attributes than those that are kept."""
    return attrs is not None and not _same(kept_attributes(structure), attrs)
