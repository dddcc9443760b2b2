"""Small archives of netCDF-4 files whose layout has one fault, or none."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

#: Steps of a file: one chunk of 90 x 18 x 36 float32 values has 233,280 bytes.
STEPS, SHAPE = 90, (18, 36)
FACETS = {"variable_id": "tas", "branding_suffix": "tavg-h2m-hxy-u", "frequency": "day", "region": "glb", "grid_label": "g1"}
FACETS |= {"source_id": "M1", "experiment_id": "historical", "variant_label": "r1i1p1f1"}


@dataclass(frozen=True)
class File:
    """How one file of the archive is written; ``steps``: its times."""

    name: str
    first: int
    steps: int = STEPS
    chunks: tuple[int, ...] | None = (STEPS, *SHAPE)
    time_chunk: int | None = None
    dtype: str = "f4"
    storage: Mapping[str, Any] = field(default_factory=lambda: {"zlib": True, "complevel": 4, "shuffle": True})
    packing: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    variable_attrs: Mapping[str, Any] = field(default_factory=dict)
    time_attrs: Mapping[str, Any] = field(default_factory=lambda: {"bounds": "time_bnds"})
    unlimited: tuple[str, ...] = ()
    variable: str = "tas"
    fill: float | None = 1e20
    format: str = "NETCDF4"
    size: tuple[int, int] = SHAPE


def clean(profile: str = "default", count: int = 4) -> list[File]:
    """Return the files of an archive without a fault.

    netCDF-C writes chunk indexes behind the first chunks, which CMIP7 does not want: contiguous variables have none.
    """
    files = [plain(number) for number in range(count)]
    return every(chunks=None, storage={})(files) if profile == "cmip7" else files


def plain(number: int) -> File:
    """Return a file without a fault."""
    identifier = uuid.UUID(int=number + 1, version=4)
    attrs = {**FACETS, "Conventions": "CF-1.11", "institution": "X", "tracking_id": f"hdl:21.14107/{identifier}"}
    facets = "_".join(FACETS.values())
    first = number * STEPS
    return File(f"{facets}_{20000101 + number}-{20000101 + number}.nc", first, attrs={**attrs, "creation_date": str(number)})


def write(folder: Path, files: list[File]) -> Path:
    """Write an archive."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        _write(folder / file.name, file)
    return folder


def _write(path: Path, file: File) -> None:
    times = np.arange(file.first, file.first + file.steps, dtype="f8")
    with netCDF4.Dataset(path, "w", format=file.format) as out:
        out.setncatts(dict(file.attrs))
        sizes = {"time": file.steps, "lat": file.size[0], "lon": file.size[1], "bnds": 2}
        for name, size in sizes.items():
            out.createDimension(name, None if name in file.unlimited else size)
        chunked = {} if file.time_chunk is None else {"chunksizes": (file.time_chunk,)}
        time = out.createVariable("time", "f8", ("time",), **chunked)
        time.setncatts({"units": "days since 2000-01-01", "standard_name": "time", "calendar": "noleap", **file.time_attrs})
        time[:] = times
        if "bounds" in file.time_attrs:
            bounds = {} if file.time_chunk is None else {"chunksizes": (file.time_chunk, 2)}
            out.createVariable("time_bnds", "f8", ("time", "bnds"), **bounds)[:] = np.stack([times - 0.5, times + 0.5], axis=1)
        for name, units, size in (("lat", "degrees_north", file.size[0]), ("lon", "degrees_east", file.size[1])):
            axis = out.createVariable(name, "f8", (name,))
            axis.units = units
            axis[:] = np.arange(size)
        storage = {**file.storage, **({} if file.chunks is None else {"chunksizes": file.chunks})}
        if file.format != "NETCDF4":
            storage = {}
        tas = out.createVariable(file.variable, file.dtype, ("time", "lat", "lon"), fill_value=file.fill, **storage)
        tas.set_auto_maskandscale(False)
        about = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: mean"}
        tas.setncatts({**about, **file.packing, **file.variable_attrs})
        values = np.arange(np.prod([file.steps, *file.size])).reshape(file.steps, *file.size) % 100 + file.first
        tas[:] = values.astype(file.dtype)


Change = Callable[[list[File]], list[File]]


def second(**changes: Any) -> Change:
    """Return a change of the second file."""
    return lambda files: [files[0], replace(files[1], **changes), *files[2:]]


def every(**changes: Any) -> Change:
    """Return a change of every file."""
    return lambda files: [replace(file, **changes) for file in files]


def second_attrs(**changes: Any) -> Change:
    """Return a change of attributes of the second file; None removes one."""

    def change(files: list[File]) -> list[File]:
        attrs = {k: v for k, v in {**files[1].attrs, **changes}.items() if v is not None}
        return second(attrs=attrs)(files)

    return change


def every_attrs(**changes: Any) -> Change:
    """Return a change of attributes of every file."""
    return lambda files: [replace(file, attrs={**file.attrs, **changes}) for file in files]


@dataclass(frozen=True)
class Fault:
    """One fault: the change that makes it, the kind and words of its finding, and the numbers of the files that have it."""

    name: str
    profile: str
    change: Change
    kind: str
    words: tuple[str, ...]
    files: tuple[int, ...] = (1,)


FIRST = plain(0).attrs["tracking_id"]
ALL = (0, 1, 2, 3)
PLAIN = {"zlib": True, "complevel": 4, "shuffle": False}
FAULTS = [
    Fault(
        "small chunks",
        "default",
        every(chunks=(10, *SHAPE)),
        "chunk_size",
        ("25.9 kB", "10 x 18 x 36", "100.0 kB"),
        ALL,
    ),
    Fault(
        "large chunks",
        "default",
        lambda files: every(size=(256, 256), chunks=(STEPS, 256, 256))(files[:2]),
        "chunk_size",
        ("23.6 MB", "more than 16.0 MB"),
        (0, 1),
    ),
    Fault(
        "padding",
        "default",
        lambda files: every(chunks=(150, *SHAPE), unlimited=("time",), time_chunk=STEPS)(files[:1]),
        "chunk_padding",
        ("150 x 18 x 36", "67%"),
        (0,),
    ),
    Fault("chunk shape", "default", second(chunks=(90, 18, 18)), "regularity", ("90 x 18 x 18", "90 x 18 x 36 in 3 files")),
    Fault("uneven end", "default", every(chunks=(50, *SHAPE)), "regularity", ("along time", "90 steps", "50"), (0, 1, 2)),
    Fault(
        "level",
        "default",
        second(storage={**PLAIN, "complevel": 1, "shuffle": True}),
        "filters",
        ("deflate 1", "deflate 4"),
    ),
    Fault("shuffle", "default", second(storage=PLAIN), "filters", ("shuffle",)),
    Fault("no filters", "default", second(storage={}), "filters", ("no filters",)),
    Fault("dtype", "default", second(dtype="f8"), "packing", ("dtype float64", "float32 in 3 files")),
    Fault("scale", "default", second(packing={"scale_factor": np.float32(0.5)}), "packing", ("scale_factor 0.5", "none in 3")),
    Fault("offset", "default", second(packing={"add_offset": np.float32(2)}), "packing", ("add_offset 2.0",)),
    Fault("fill value", "default", second(fill=-1.0), "packing", ("_FillValue -1.0", "1e+20 in 3 files")),
    Fault("time chunks", "cloud", second(time_chunk=1), "time_chunks", ("time", "90 chunks"), (1,)),
    Fault(
        "small chunks of CMIP7",
        "cmip7",
        lambda files: every(storage={"zlib": True}, size=(64, 128), chunks=(10, 64, 128), steps=200)(
            [replace(f, first=200 * n) for n, f in enumerate(files[:2])]
        ),
        "chunk_size",
        ("327.7 kB", "less than 4.2 MB"),
        (0, 1),
    ),
    Fault("unlimited", "default", second(unlimited=("lat",)), "unlimited", ("lat",)),
    Fault("format", "cloud", second(format="NETCDF3_CLASSIC"), "formats", ("netCDF3",)),
    Fault("variable name", "default", every(variable="2t"), "names", ("'2t'",), ALL),
    Fault("file name", "cmip7", second(name="tas.nc"), "names", ("file names",)),
    Fault(
        "facet",
        "cmip7",
        lambda files: [replace(f, attrs={**f.attrs, "region": "nh"}) for f in files],
        "names",
        ("region", "'glb'", "nh"),
        ALL,
    ),
    Fault("no identifier", "default", second_attrs(tracking_id=None), "tracking_id", ("missing",)),
    Fault("repeated identifier", "default", second_attrs(tracking_id=FIRST), "tracking_id", ("repeated",)),
    Fault("malformed identifier", "default", second_attrs(tracking_id="hdl:21.14107/12"), "tracking_id", ("malformed", "12")),
    Fault("no bounds", "default", second(time_attrs={}), "bounds", ("time", "no bounds")),
    Fault("lost bounds", "default", second(time_attrs={"climatology": "climatology_bnds"}), "bounds", ("'climatology_bnds'",)),
    Fault("attribute", "default", second_attrs(institution="Y"), "attributes", ("institution is 'Y'", "'X' in 3 files")),
    Fault("lost attribute", "default", second_attrs(institution=None), "attributes", ("institution is missing", "'X'")),
    Fault(
        "variable attribute",
        "default",
        second(variable_attrs={"long_name": "T"}),
        "attributes",
        ("tas: long_name", "missing in 3"),
    ),
]
