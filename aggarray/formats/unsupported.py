"""Formats that are recognised but not read, and how to convert them."""

from __future__ import annotations

import os
from collections.abc import Collection

_CONVERT_GRIB = "convert it (cdo -f nc copy IN OUT.nc, or xarray with cfgrib), or index it with kerchunk"
_IMAGE = "open it with rioxarray and write netCDF or Zarr"
_TABLE = "open the table with pandas or pyarrow and write arrays as netCDF or Zarr"
_MATLAB = "load it with scipy.io.loadmat, or save it with -v7.3, which is HDF5"
_ZIP = "unpack it, open a zipped Zarr store as zip://::PATH, or open a file in it as zip://NAME::PATH (extra remote)"
_CDF = "a NASA CDF file, which is not netCDF"
_UNPACK = "unpack it and open its contents"
_FETCH = "fetch the file again, with the credentials and the address of the data"
_ICECHUNK = "an Icechunk repository"
_ICECHUNK_HINT = "open it with icechunk and xarray and write arrays with to_zarr, or export kerchunk references of it"
_ICECHUNK_MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"

#: Signatures of files: offset, bytes, description, hint.
_SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"GRIB", "a GRIB file", _CONVERT_GRIB),
    (0, b"BUFR", "a BUFR file", "decode it with eccodes"),
    (0, b"II*\0", "a TIFF or GeoTIFF image", _IMAGE),
    (0, b"MM\0*", "a TIFF or GeoTIFF image", _IMAGE),
    (0, b"II+\0", "a BigTIFF image", _IMAGE),
    (0, b"MM\0+", "a BigTIFF image", _IMAGE),
    (0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5 with h4toh5, or to netCDF"),
    (0, b"PAR1", "a Parquet file", _TABLE),
    (0, b"ARROW1", "an Arrow file", _TABLE),
    (0, b"PK\x03\x04", "a zip archive", _ZIP),
    (0, b"PK\x05\x06", "an empty zip archive", "write or fetch it again"),
    (257, b"ustar", "a tar archive", "unpack it, or open a file in it as tar://NAME::PATH (extra remote)"),
    (0, b"\x1f\x8b", "a gzip file", _UNPACK),
    (0, b"\x1f\x9d", "a file written by compress", _UNPACK),
    (0, b"BZh", "a bzip2 file", _UNPACK),
    (0, b"\xfd7zXZ\0", "an xz file", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"\x93NUMPY", "a NumPy file", "load it with numpy.load and make sub-arrays with SubArray.from_array"),
    (0, b"MATLAB 5.0 MAT-file", "a MATLAB file of version 5", _MATLAB),
    (0, b"\xcd\xf3\0\1", _CDF, "convert it with cdf2nc"),
    (0, b"\xcd\xf2\x60\2", _CDF, "convert it with cdf2nc"),
    (0, b"SIMPLE  =", "a FITS file", "open it with astropy and write netCDF or Zarr"),
    (0, b"SQLite format 3\0", "an SQLite database", "export its arrays as netCDF or Zarr"),
    (0, _ICECHUNK_MAGIC, "a file of an Icechunk repository", _ICECHUNK_HINT),
    (0, b"%PDF", "a PDF document", "pass the data files"),
    (0, b"\x89PNG", "a PNG image", "pass the data files"),
    (0, b"\xff\xd8\xff", "a JPEG image", "pass the data files"),
    (0, b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS, not the file", "fetch the file with git lfs pull"),
    (0, b"/annex/objects/", "a pointer of git-annex, not the file", "fetch the file with git annex get"),
)
#: Beginnings of text files, in lower case, without leading blanks: bytes, description, hint.
_TEXTS = (
    (b"<!doctype html", "an HTML page, perhaps of an error or a login", _FETCH),
    (b"<html", "an HTML page, perhaps of an error or a login", _FETCH),
    (b"<?xml", "an XML document, perhaps the error of a server", _FETCH),
    (b"<error", "an XML document, perhaps the error of a server", _FETCH),
    *((mark, "a JSON document, perhaps the error of a server", _FETCH) for mark in (b'{"error', b'{"message', b'{"detail')),
    (b"dataset {", "the description (DDS) of a dataset on an OPeNDAP server", "fetch the file itself"),
)
#: Suffixes and names of files in a folder of Parquet files.
_PARQUET, _PARQUET_FILES = (".parquet", ".parq", ".crc"), ("_metadata", "_common_metadata", "_SUCCESS")
#: Suffixes of unfinished downloads.
_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".filepart", ".aria2", ".!qb", ".opdownload")


def unsupported_head(head: bytes) -> tuple[str, str] | None:
    """Return description and hint for first bytes, None if unknown.

    >>> unsupported_head(b"GRIB\\0\\0\\0\\2")[0], unsupported_head(b"hello")
    ('a GRIB file', None)
    """
    for offset, mark, description, hint in _SIGNATURES:
        if head.startswith(mark, offset):
            return description, hint
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for mark, description, hint in _TEXTS:
        if text.startswith(mark):
            return description, hint
    if not head.strip(b"\0"):
        return "a file that begins with zeros, perhaps an unfinished download", "fetch the file again"
    return None


def unsupported_folder(path: str, folders: Collection[str], files: Collection[str]) -> tuple[str, str] | None:
    """Return description and hint for a folder's entries, None if unknown."""
    if "snapshots" in folders and ("refs" in folders or "repo" in files) and _is_icechunk(os.path.join(path, "snapshots")):
        return _ICECHUNK, _ICECHUNK_HINT
    if (
        "__schema" in folders
        or {"__array_schema.tdb", "__tiledb_group.tdb"} & set(files)
        or {"__group", "__meta"} <= set(folders)
    ):
        return "a TileDB array or group", "open it with tiledb and write netCDF or Zarr"
    if "attributes.json" in files and _is_n5(os.path.join(path, "attributes.json")):
        return "an N5 container", "open it with zarr-python 2 (zarr.N5Store) or tensorstore and write Zarr"
    if "_delta_log" in folders or (files and all(n.endswith(_PARQUET) or n in _PARQUET_FILES for n in files)):
        return "a folder of Parquet files", _TABLE
    return None


def unsupported_parent(path: str) -> tuple[str, str] | None:
    """Return description and hint for a file in an unsupported folder."""
    folder = os.path.dirname(path)
    parent = os.path.dirname(folder)
    inside = os.path.basename(folder) in ("chunks", "snapshots", "manifests", "transactions")
    return (f"a part of {parent}, {_ICECHUNK}", _ICECHUNK_HINT) if inside and _is_icechunk(f"{parent}/snapshots") else None


def is_unfinished(path: str) -> bool:
    """Return whether a file has the suffix of an unfinished download."""
    return path.lower().endswith(_UNFINISHED)


def broken_link(path: str) -> tuple[str, str] | None:
    """Return description and hint for a broken link, else None."""
    if not os.path.islink(path) or os.path.exists(path):
        return None
    target = os.readlink(path)
    if "annex/objects/" in target:
        return "a git-annex link to a file that is not here", "fetch it with git annex get"
    return f"a link to {target!r:.200}, which does not exist", "correct the link"


def _is_icechunk(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            name = next((entry.name for entry in entries if entry.is_file()), None)
        if name is None:
            return False
        with open(os.path.join(folder, name), "rb") as file:
            return file.read(len(_ICECHUNK_MAGIC)) == _ICECHUNK_MAGIC
    except OSError:
        return False


def _is_n5(path: str) -> bool:
    import json

    try:
        with open(path, "rb") as file:
            attributes = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(attributes, dict) and ("n5" in attributes or {"dimensions", "blockSize", "dataType"} <= set(attributes))
