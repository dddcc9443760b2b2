"""Contents of data files as one reader sees them, in a process that a file may crash.

``python -m tests.support.corpus_process READER`` reads the path of a file per line of standard input, and answers with a line
of JSON. READER is "aggarray", "h5py", "netCDF4" or "zarr".
"""

import contextlib
import hashlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

#: Arrays of more bytes are compared by shape only.
LARGE = 1 << 26
#: Prefix of the stored name of a netCDF-4 variable with the name of a dimension that is not its coordinate variable.
_OTHER_NAME = "_nc4_non_coord_"
_PURE = b"This is a netCDF dimension but not a netCDF variable"
#: Attributes that make read values differ from stored values.
_CODED = {"_FillValue", "missing_value", "scale_factor", "add_offset", "valid_min", "valid_max", "valid_range", "_Unsigned"}


def described(dtype: np.dtype[Any], shape: tuple[int, ...], read: Callable[[], Any]) -> dict[str, Any]:
    """Return kind, shape and a digest of an array, or the error of reading it."""
    told: dict[str, Any] = {"kind": dtype.kind if dtype.names is None and dtype.subdtype is None else "V", "shape": list(shape)}
    if told["kind"] not in "biufc" or math.prod(shape) * dtype.itemsize > LARGE:
        return told
    try:
        values = np.asarray(np.ma.getdata(read()))
    except Exception as error:
        return told | {"error": type(error).__name__, "message": str(error)}
    told["shape"] = list(values.shape)
    # Long doubles have padding bytes.
    values = values.astype("f8" if values.dtype == np.longdouble else values.dtype.newbyteorder("="), order="C")
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    return told | {"digest": f"{values.itemsize} {digest}", "begins": repr(values.ravel()[:4].tolist())}


# By h5py


def by_h5py(path: str) -> dict[str, Any]:
    """Return all datasets of a file with their names and contents."""
    import h5py

    objects: dict[str, dict[str, Any]] = {}
    with h5py.File(path, "r", locking=False) as file:
        _walk(file, "", objects, set())
    return {"objects": list(objects.values())}


def _walk(group: Any, prefix: str, objects: dict[str, dict[str, Any]], seen: set[str]) -> None:
    import h5py

    # Hard links come before soft links to the same object.
    for key in sorted(group, key=lambda key: not isinstance(group.get(key, getlink=True), h5py.HardLink)):
        name = f"{prefix}{key if isinstance(key, str) else key.decode('utf-8', 'backslashreplace')}"
        try:
            if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
                continue
            item = group[key]
        except Exception:
            continue
        info = h5py.h5o.get_info(item.id)
        address = f"{info.fileno} {info.addr}"
        if isinstance(item, h5py.Group):
            if address not in seen and name.count("/") < 100:
                seen.add(address)
                _walk(item, f"{name}/", objects, seen)
        elif isinstance(item, h5py.Dataset):
            if address not in objects:
                objects[address] = {"names": [], **_dataset(item)}
            parent, slash, base = name.rpartition("/")
            objects[address]["names"].append(f"{parent}{slash}{base.removeprefix(_OTHER_NAME)}")


def _dataset(dataset: Any) -> dict[str, Any]:
    import h5py

    told: dict[str, Any] = {"kind": "unknown"}
    try:
        dtype = dataset.dtype
        inner = h5py.check_vlen_dtype(dtype)
        if inner is not None and np.dtype(inner).kind in "biufc" and len(dataset.shape or ()) == 1:
            rows = [np.asarray(row, inner).ravel() for row in dataset[()]] if dataset.shape[0] < 10**6 else []
            samples = np.concatenate([np.empty(0, inner), *rows])
            told = described(samples.dtype, samples.shape, lambda: samples)
        elif dataset.shape is None:
            told = {"kind": dtype.kind, "shape": None}
        else:
            told = described(dtype, dataset.shape, lambda: dataset[()])
        told["pure"] = bytes(dataset.attrs.get("NAME", b"")).startswith(_PURE)
    except Exception as error:
        told |= {"error": type(error).__name__, "message": str(error)}
    return told


# By netCDF4 and zarr


def by_netcdf4(path: str) -> dict[str, Any]:
    """Return the variables of a file by path."""
    import netCDF4

    result: dict[str, Any] = {}
    with netCDF4.Dataset(path, "r") as dataset:
        dataset.set_auto_maskandscale(False)
        waiting = [("", dataset)]
        while waiting:
            prefix, group = waiting.pop()
            waiting += [(f"{prefix}{name}/", child) for name, child in group.groups.items()]
            for name, variable in group.variables.items():
                dtype = np.dtype(object if variable.dtype is str else variable.dtype)
                result[prefix + name] = described(dtype, variable.shape, lambda v=variable: v[...])  # type: ignore[misc]
    return {"variables": result}


def by_zarr(path: str) -> dict[str, Any]:
    """Return the arrays of a store by path."""
    import zarr

    group = zarr.open(path, mode="r")
    arrays = {os.path.basename(path): group} if isinstance(group, zarr.Array) else dict(_arrays(group, ""))
    return {"variables": {name: described(a.dtype, a.shape, lambda a=a: a[...]) for name, a in arrays.items()}}  # type: ignore[misc]


def _arrays(group: Any, prefix: str) -> list[tuple[str, Any]]:
    result = [(prefix + name, array) for name, array in group.arrays()]
    for name, child in group.groups():
        result += _arrays(child, f"{prefix}{name}/")
    return result


# By aggarray


def by_aggarray(path: str) -> dict[str, Any]:
    """Return the variables of a file by path, as stored and as opened arrays, the skipped items, and the scanner."""
    from aggarray.formats import open_file, scan
    from aggarray.formats.base import full_box

    structure = scan(path)
    with contextlib.closing(open_file(path)) as handle:
        result = {
            v.name: _read(v.dtype, v.shape, lambda v=v: handle.read(v.name, full_box(v.shape)))  # type: ignore[misc]
            for v in structure.variables
        }
    plain = {v.name for v in structure.variables if not _CODED & set(v.attrs)}
    return {"variables": result, "skipped": dict(structure.skipped), "arrays": _opened(path, plain)}


def _read(dtype: Any, shape: tuple[int, ...], read: Callable[[], Any]) -> dict[str, Any]:
    """Return the description of a variable; text is read, too."""
    told = described(dtype, shape, read)
    if "digest" in told or "error" in told or math.prod(shape) > 1 << 16:
        return told
    from aggarray import AggarrayError

    try:
        read()
    except AggarrayError as error:
        return told | {"error": type(error).__name__, "message": str(error)}
    return told


def _opened(path: str, plain: set[str]) -> dict[str, Any]:
    import aggarray as aa
    from aggarray.arrays.ragged import flat_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive = aa.open(path, processes=1)
    result = {}
    for array in archive:
        for one in (array, *array.coords.values()):
            flat = flat_of(one)
            parts = [partition.data for partition in flat.partitions]
            if len(parts) == 1 and parts[0] is not None and parts[0].variable in plain:
                result[str(parts[0].variable)] = described(flat.dtype, flat.shape, flat.read)
    return result


READERS = {"aggarray": by_aggarray, "h5py": by_h5py, "netCDF4": by_netcdf4, "zarr": by_zarr}


def main(reader: str) -> None:
    """Write an answer for every path of standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Output that libraries print must not mix with the answers.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            told = READERS[reader](json.loads(line))
        except Exception as error:
            told = {"error": type(error).__name__, "message": str(error), "ours": _is_ours(error)}
        answers.write(json.dumps(told) + "\n")


def _is_ours(error: Exception) -> bool:
    errors = sys.modules.get("aggarray.errors")
    return errors is not None and isinstance(error, errors.AggarrayError)


if __name__ == "__main__":
    main(sys.argv[1])
