"""Files and folders of kinds that aggarray does not read, known by content: what they are, and what to do with them."""

import json
import os
from collections.abc import Collection

_CONVERT_GRIB = "convert it (cdo -f nc copy IN OUT.nc, or xarray with cfgrib), or index it by kerchunk"
_IMAGE = "open it with rioxarray, and write netCDF or Zarr"
_TABLE = "a table is no array: open it with pandas or pyarrow, and write netCDF or Zarr"
_MATLAB = "load it with scipy.io.loadmat, or save it by -v7.3, which is HDF5"
_ZIP = "unpack it; a Zarr store that is all of it opens as zip://::PATH, a file in it as zip://NAME::PATH (extra remote)"
_CDF = "a NASA CDF file, which is not netCDF"
_UNPACK = "unpack it, and open what is in it"
_FETCH = "fetch the file again, with the credentials and the address of the data"
_ICECHUNK = "an Icechunk repository"
_ICECHUNK_WAY = "open it with icechunk and xarray, and write what you want by to_zarr; or export references (kerchunk) of it"
_ICE = b"ICE\xf0\x9f\xa7\x8aCHUNK"

#: Where a file begins so: offset, bytes, what it is, what to do.
_BEGINNINGS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"GRIB", "a GRIB file", _CONVERT_GRIB),
    (0, b"BUFR", "a BUFR file", "decode it with eccodes"),
    (0, b"II*\0", "a TIFF or GeoTIFF image", _IMAGE),
    (0, b"MM\0*", "a TIFF or GeoTIFF image", _IMAGE),
    (0, b"II+\0", "a BigTIFF image", _IMAGE),
    (0, b"MM\0+", "a BigTIFF image", _IMAGE),
    (0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5 by h4toh5, or to netCDF"),
    (0, b"PAR1", "a Parquet file", _TABLE),
    (0, b"ARROW1", "an Arrow file", _TABLE),
    (0, b"PK\x03\x04", "a zip archive", _ZIP),
    (0, b"PK\x05\x06", "a zip archive with nothing in it", "write or fetch it again"),
    (257, b"ustar", "a tar archive", "unpack it; a file in it opens as tar://NAME::PATH (extra remote)"),
    (0, b"\x1f\x8b", "a gzip file", _UNPACK),
    (0, b"\x1f\x9d", "a file packed by compress", _UNPACK),
    (0, b"BZh", "a bzip2 file", _UNPACK),
    (0, b"\xfd7zXZ\0", "an xz file", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"\x93NUMPY", "a NumPy file", "load it with numpy.load, and make arrays by SubArray.from_array"),
    (0, b"MATLAB 5.0 MAT-file", "a MATLAB file of version 5", _MATLAB),
    (0, b"\xcd\xf3\0\1", _CDF, "convert it by cdf2nc"),
    (0, b"\xcd\xf2\x60\2", _CDF, "convert it by cdf2nc"),
    (0, b"SIMPLE  =", "a FITS file", "open it with astropy, and write netCDF or Zarr"),
    (0, b"SQLite format 3\0", "an SQLite database", "export its arrays as netCDF or Zarr"),
    (0, _ICE, "a file of an Icechunk repository", _ICECHUNK_WAY),
    (0, b"%PDF", "a PDF document", "name the data files"),
    (0, b"\x89PNG", "a PNG image", "name the data files"),
    (0, b"\xff\xd8\xff", "a JPEG image", "name the data files"),
    (0, b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS, not the file", "fetch the file by git lfs pull"),
    (0, b"/annex/objects/", "a pointer of git-annex, not the file", "fetch the file by git annex get"),
)
#: Where text begins so, blanks before it and case apart.
_TEXTS = (
    (b"<!doctype html", "an HTML page, perhaps of an error or a login", _FETCH),
    (b"<html", "an HTML page, perhaps of an error or a login", _FETCH),
    (b"<?xml", "an XML document, perhaps the error of a server", _FETCH),
    (b"<error", "an XML document, perhaps the error of a server", _FETCH),
    *((mark, "a JSON document, perhaps the error of a server", _FETCH) for mark in (b'{"error', b'{"message', b'{"detail')),
    (b"dataset {", "the description (DDS) of a dataset on an OPeNDAP server", "fetch the file itself"),
)
#: How downloads name what is not complete.
_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".filepart", ".aria2", ".!qb", ".opdownload")


def kind_of_head(head: bytes) -> tuple[str, str] | None:
    """Return what a file is that begins so, and what to do with it; None where that is not known.

    >>> kind_of_head(b"GRIB\\0\\0\\0\\2")[0], kind_of_head(b"hello")
    ('a GRIB file', None)
    """
    for offset, mark, what, way in _BEGINNINGS:
        if head.startswith(mark, offset):
            return what, way
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for mark, what, way in _TEXTS:
        if text.startswith(mark):
            return what, way
    if not head.strip(b"\0"):
        return "a file that begins with zeros", "a download that has not ended, or a damaged disk: fetch it again"
    return None


def kind_of_folder(path: str, folders: Collection[str], files: Collection[str]) -> tuple[str, str] | None:
    """Return what a local folder is, by the names of what is in it, and what to do with it; None where that is not known."""
    if "snapshots" in folders and ("refs" in folders or "repo" in files) and _begins_with_ice(os.path.join(path, "snapshots")):
        return _ICECHUNK, _ICECHUNK_WAY
    if (
        "__schema" in folders
        or {"__array_schema.tdb", "__tiledb_group.tdb"} & set(files)
        or {"__group", "__meta"} <= set(folders)
    ):
        return "a TileDB array or group", "open it with tiledb, and write netCDF or Zarr"
    if "attributes.json" in files and _is_n5(os.path.join(path, "attributes.json")):
        return "an N5 container", "open it with zarr-python 2 (zarr.N5Store) or tensorstore, and write Zarr"
    if "_delta_log" in folders or (files and all(map(_is_parquet, files))):
        return "a folder of Parquet files", _TABLE
    return None


def kind_above(path: str) -> tuple[str, str] | None:
    """Return of which kind of folder a local file is a part, and what to do; None where that is not known."""
    folder = os.path.dirname(path)
    above = os.path.dirname(folder)
    inside = os.path.basename(folder) in ("chunks", "snapshots", "manifests", "transactions")
    return (f"a part of {above}, {_ICECHUNK}", _ICECHUNK_WAY) if inside and _begins_with_ice(f"{above}/snapshots") else None


def is_unfinished(path: str) -> bool:
    """Return whether the name of a file says that it is still being downloaded."""
    return path.lower().endswith(_UNFINISHED)


def lost_link(path: str) -> str | None:
    """Return what a link that leads nowhere is, and what to do with it; None for what is no such link."""
    if not os.path.islink(path) or os.path.exists(path):
        return None
    target = os.readlink(path)
    if "annex/objects/" in target:
        return "a link of git-annex to a file that is not here; fetch it by git annex get"
    return f"a link to {target!r:.200}, which does not exist; correct the link"


def _begins_with_ice(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            name = next((entry.name for entry in entries if entry.is_file()), None)
        if name is None:
            return False
        with open(os.path.join(folder, name), "rb") as file:
            return file.read(len(_ICE)) == _ICE
    except OSError:
        return False


def _is_n5(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and ("n5" in found or {"dimensions", "blockSize", "dataType"} <= set(found))


def _is_parquet(name: str) -> bool:
    return name.endswith((".parquet", ".parq", ".crc")) or name in ("_metadata", "_common_metadata", "_SUCCESS")
