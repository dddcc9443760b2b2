"""Specimens: small files of every supported format and layout, to be damaged.

Each function in `SPECIMENS` writes a file or store into a folder and returns its path. Data files of references lie next to
the specimen and are not damaged.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import zarr

import aggarray as aa
from tests.support.netcdf import LAT, LON, TAS, TIME, cube, write
from tests.support.paths import FIXTURES

Maker = Callable[[Path], str]
SHAPE = (6, 4, 5)
SPECIMENS: dict[str, Maker] = {}


def specimen(*given: tuple[str, dict[str, Any]]) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function once per (name, arguments)."""

    def enter(make: Callable[..., str]) -> Callable[..., str]:
        for name, arguments in given or [(make.__name__.strip("_"), {})]:
            SPECIMENS[name] = lambda folder, arguments=arguments: make(folder, **arguments)
        return make

    return enter


def values(shift: float = 0) -> np.ndarray:
    """Return the values of `tas`: compressible and distinct."""
    return (np.arange(np.prod(SHAPE)).reshape(SHAPE) * 0.25 + 200 + shift).astype("f4")


def _cube(**changes: Any) -> dict[str, tuple[Any, ...]]:
    return cube(
        range(SHAPE[0]), range(SHAPE[1]), range(SHAPE[2]), **{"tas": (("time", "lat", "lon"), values(), TAS), **changes}
    )


# netCDF-3


@specimen(*((f"netcdf3-{k}", {"kind": k}) for k in ("CLASSIC", "64BIT_OFFSET", "64BIT_DATA")))
def _fixed(folder: Path, kind: str) -> str:
    packed = (("lat", "lon"), np.arange(20).reshape(4, 5).astype("i2"), {"scale_factor": 0.5, "_FillValue": np.int16(7)})
    return write(folder / "a.nc", _cube(packed=packed), {"title": "fixed"}, f"NETCDF3_{kind}")


@specimen(*((f"netcdf3-records-{k}", {"kind": k}) for k in ("CLASSIC", "64BIT_OFFSET", "64BIT_DATA")))
def _records(folder: Path, kind: str) -> str:
    text = (("lat", "length"), np.array([list("ab  "), list("cdef"), list("gh  "), list("ijk ")], "S1"))
    return write(folder / "a.nc", _cube(name=text), {"title": "records"}, f"NETCDF3_{kind}", ("time",))


@specimen()
def _netcdf3_one_record_variable(folder: Path) -> str:
    data = (("time", "x"), np.arange(15, dtype="i2").reshape(5, 3))
    return write(folder / "a.nc", {"data": data}, format="NETCDF3_CLASSIC", unlimited=("time",))


# netCDF-4, written by netCDF4


@specimen(
    ("netcdf4-contiguous", {}),
    ("netcdf4-deflate", {"compression": "zlib", "shuffle": True, "chunksizes": (2, 2, 5)}),
    ("netcdf4-fletcher32", {"fletcher32": True, "chunksizes": (2, 2, 5)}),
    ("netcdf4-all", {"compression": "zlib", "shuffle": True, "fletcher32": True, "chunksizes": (2, 2, 5)}),
    ("netcdf4-big-endian", {"order": ">"}),
)
def _netcdf4(folder: Path, order: str = "<", **stored: Any) -> str:
    path = folder / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title = "netCDF-4"
        for name, size, attrs in (("time", None, TIME), ("lat", SHAPE[1], LAT), ("lon", SHAPE[2], LON)):
            # Contiguous storage needs fixed dimensions.
            file.createDimension(name, size if size or stored.get("chunksizes") else SHAPE[0])
            made = file.createVariable(name, "f8", (name,))
            made.setncatts(attrs)
            made[:] = np.arange(size or SHAPE[0])
        made = file.createVariable("tas", f"{order}f4", ("time", "lat", "lon"), fill_value=np.float32(1e20), **stored)
        made.setncatts(TAS)
        made[:] = values()
        where = file.createGroup("inner").createVariable("pr", "i2", ("lat", "lon"))
        where[:] = np.arange(20).reshape(4, 5)
    return str(path)


@specimen()
def _netcdf4_text(folder: Path) -> str:
    texts = (("time",), np.array(["one", "two", "three", "four", "five", "a longer text"]))
    return write(folder / "a.nc", _cube(name=texts), {"title": "text", "lots": "x" * 300})


@specimen()
def _netcdf4_many(folder: Path) -> str:
    """Write enough variables and attributes for dense storage in heaps."""
    many = {f"v{i}": (("lat",), np.arange(4.0) + i, {f"a{j}": j for j in range(12)}) for i in range(12)}
    return write(folder / "a.nc", {**_cube(), **many})


@specimen()
def _netcdf4_rows(folder: Path) -> str:
    path = folder / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("profile", 3)
        made = file.createVariable("temperature", file.createVLType(np.float64, "rows"), ("profile",))
        for i in range(3):
            made[i] = np.arange(i + 1.0) + 10 * i
    return str(path)


# HDF5, written by h5py


@specimen(
    *(
        (f"hdf5-{name}-{version}", {"version": version, **arguments})
        for version in ("earliest", "latest")
        for name, arguments in (
            ("contiguous", {}),
            ("compact", {"compact": True}),
            ("one-chunk", {"chunks": SHAPE}),
            ("one-chunk-deflate", {"chunks": SHAPE, "compression": "gzip"}),
            ("chunks", {"chunks": (1, 2, 5)}),
            ("deflate", {"chunks": (1, 2, 5), "compression": "gzip", "shuffle": True}),
            ("growing", {"chunks": (1, 2, 5), "maxshape": (None, 4, 5), "compression": "gzip"}),
            ("growing-plain", {"chunks": (1, 1, 2), "maxshape": (None, 4, 5)}),
            ("growing-twice", {"chunks": (1, 2, 3), "maxshape": (None, None, 5), "compression": "gzip"}),
            ("growing-twice-plain", {"chunks": (1, 2, 3), "maxshape": (None, None, 5)}),
            ("fletcher32", {"chunks": (2, 4, 5), "fletcher32": True, "maxshape": (None, 4, 5)}),
            ("scaleoffset", {"chunks": (2, 4, 5), "scaleoffset": 2}),
            ("szip", {"chunks": (2, 4, 5), "compression": "szip"}),
            ("lzf", {"chunks": (2, 4, 5), "compression": "lzf"}),
        )
    )
)
def _hdf5(folder: Path, version: str, compact: bool = False, **stored: Any) -> str:
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        for name, size, attrs in (("time", SHAPE[0], TIME), ("lat", SHAPE[1], LAT), ("lon", SHAPE[2], LON)):
            file[name] = np.arange(float(size))
            file[name].attrs.update(attrs)
            file[name].make_scale(name)
        if compact:
            made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            made.set_layout(h5py.h5d.COMPACT)
            h5py.h5d.create(file.id, b"tas", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple(SHAPE), made)
            file["tas"][...] = values()
        else:
            file.create_dataset("tas", data=values(), **stored)
        file["tas"].attrs.update(TAS)
        for axis, name in enumerate(("time", "lat", "lon")):
            file["tas"].dims[axis].attach_scale(file[name])
    return str(path)


@specimen(
    *(
        (f"hdf5-many-chunks-{v}-{k}", {"version": v, "kind": k})
        for v in ("earliest", "latest")
        for k in ("fixed", "long", "both")
    )
)
def _many_chunks(folder: Path, version: str, kind: str) -> str:
    """Write enough chunks for indexes with several levels or pages."""
    path = folder / "a.h5"
    growing = {"fixed": None, "long": (None, 40), "both": (None, None)}[kind]
    with h5py.File(path, "w", libver=version) as file:
        data = np.arange(1400 * 2, dtype="i2").reshape(1400, 2)
        growing = growing and (growing[0], growing[1] and 2)
        file.create_dataset("data", data=data, chunks=(1, 2), maxshape=growing)
    return str(path)


@specimen(("hdf5-user-block", {}))
def _user_block(folder: Path) -> str:
    path = folder / "a.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("data", data=np.arange(40.0).reshape(4, 10), chunks=(1, 10), compression="gzip")
    return str(path)


@specimen(*((f"hdf5-groups-{v}", {"version": v}) for v in ("earliest", "latest")))
def _groups(folder: Path, version: str) -> str:
    """Write links in symbol tables, or in heaps and trees, and attributes of many types."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version, track_order=version == "latest") as file:
        for i in range(20):
            inner = file.create_group(f"group_{i}")
            inner.attrs["text"], inner.attrs["numbers"] = "x" * 20, np.arange(3)
            inner["data"] = np.arange(3) + i
        file["texts"] = ["one", "two", "a long text of many characters"]
        file["linked"] = h5py.SoftLink("/group_1/data")
        for j in range(20):
            file["texts"].attrs[f"a{j}"] = ["text", "of variable length"]
    return str(path)


# Zarr


#: Position of the checksum, where configurable.
_END = {"crc32": {"location": "end"}, "crc32c": {"location": "end"}}
_CODECS_2: dict[str, Any] = {
    "plain": {"compressors": None},
    "zlib": {"compressors": {"id": "zlib", "level": 1}},
    "gzip": {"compressors": {"id": "gzip", "level": 1}},
    "zstd": {"compressors": {"id": "zstd", "level": 1}},
    "lz4": {"compressors": {"id": "lz4"}},
    "blosc": {"compressors": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}},
    "bz2": {"compressors": {"id": "bz2", "level": 1}},
    "shuffle": {"filters": [{"id": "shuffle", "elementsize": 4}], "compressors": {"id": "zlib", "level": 1}},
    **{
        name: {"filters": [{"id": name, **_END.get(name, {})}], "compressors": None}
        for name in ("fletcher32", "crc32", "adler32", "crc32c", "jenkins_lookup3")
    },
}


@specimen(*((f"zarr2-{name}", {"name": name}) for name in _CODECS_2))
def _zarr2(folder: Path, name: str) -> str:
    import numcodecs

    settings = _CODECS_2[name]
    arguments = {
        "filters": [numcodecs.get_codec(dict(f)) for f in settings.get("filters", ())] or None,
        "compressors": numcodecs.get_codec(dict(settings["compressors"])) if settings["compressors"] else None,
    }
    return _zarr(folder, 2, arguments)


def _zarr(folder: Path, version: int, arguments: Mapping[str, Any], consolidated: bool = False) -> str:
    path = folder / "a.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for name, size, attrs in (("time", SHAPE[0], TIME), ("lat", SHAPE[1], LAT), ("lon", SHAPE[2], LON), ("tas", None, TAS)):
        names = ("time", "lat", "lon") if size is None else (name,)
        data = values() if size is None else np.arange(float(size))
        same = {key: value for key, value in arguments.items() if key not in ("shards", "chunks")}
        given = {"chunks": (2, 4, 5), **arguments} if size is None else {**same, "chunks": (size,)}
        noted: dict[str, Any] = {"dimension_names": names} if version == 3 else {}
        made = group.create_array(name, shape=data.shape, dtype=data.dtype, **{**given, **noted})
        made[...] = data
        made.attrs.update({**attrs, **({"_ARRAY_DIMENSIONS": list(names)} if version == 2 else {})})
    if consolidated:
        zarr.consolidate_metadata(path)
    return str(path)


def _codecs_3() -> dict[str, dict[str, Any]]:
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

    shards = {"chunks": (1, 2, 5), "shards": (2, 4, 5)}
    return {
        "plain": {"compressors": None},
        "zstd": {"compressors": ZstdCodec()},
        "zstd-checked": {"compressors": ZstdCodec(checksum=True)},
        "gzip": {"compressors": GzipCodec()},
        "blosc": {"compressors": BloscCodec()},
        "crc32c": {"compressors": Crc32cCodec()},
        "zstd-crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
        "shards": {"compressors": ZstdCodec(), **shards},
        "shards-crc32c": {"compressors": Crc32cCodec(), **shards},
        "consolidated": {"compressors": ZstdCodec(), "consolidated": True},
    }


@specimen(*((f"zarr3-{name}", {"name": name}) for name in _codecs_3()))
def _zarr3(folder: Path, name: str) -> str:
    arguments = _codecs_3()[name]
    return _zarr(folder, 3, arguments, arguments.pop("consolidated", False))


@specimen()
def _zarr2_consolidated(folder: Path) -> str:
    return _zarr(folder, 2, {"compressors": None}, consolidated=True)


# References and indexes, next to the files that they name


@specimen(
    *((f"kerchunk-{name}", {"name": name}) for name in ("both.nc4.json", "both.nc3.json", "virtualizarr.json", "both.nc4.parq"))
)
def _kerchunk(folder: Path, name: str) -> str:
    for path in FIXTURES.joinpath("kerchunk").iterdir():
        if path.is_file() and path.suffix != ".json":
            shutil.copy(path, folder)
    result = FIXTURES / "kerchunk" / name
    if result.is_dir():
        return str(shutil.copytree(result, folder / name))
    return str(shutil.copy(result, folder))


@specimen(
    ("index", {}),
    ("index-without-chunks", {"chunk_table": False}),
    ("index-cfa", {"convention": "CFA-0.4"}),
)
def _index(folder: Path, **arguments: Any) -> str:
    for i in range(2):
        times = np.arange(6.0) + 6 * i
        write(folder / f"data_{i}.nc", _cube(time=(("time",), times, TIME), tas=(("time", "lat", "lon"), values(i), TAS)))
    aa.open(str(folder / "data_*.nc")).save(folder / "a.nca", **arguments)
    return str(folder / "a.nca")


@specimen()
def _foreign_index(folder: Path) -> str:
    """Write a CF-1.13 aggregation file as other software does: without the additions of aggarray."""
    path = Path(_index(folder))
    with h5py.File(path, "r+") as file:
        del file["aggarray"]
        for name in [n for n in file.attrs if "aggarray" in n.lower()]:
            del file.attrs[name]
    return str(path)


def files_of(path: str) -> list[str]:
    """Return the files of a specimen relative to its path; "" for a specimen that is a file."""
    root = Path(path)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) if root.is_dir() else [""]
