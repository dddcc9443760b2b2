"""Files beside the data that are not data: notes, scripts, images, logs.

A walk of a folder and the matches of a pattern leave them out. A file that a source names individually is never left out, nor
one that a format recognises, or whose name or content looks like data that cannot be read.
"""

from __future__ import annotations

import os

from aggarray.errors import FormatError, MissingFileError
from aggarray.formats import HEAD, identify
from aggarray.formats.unsupported import is_unfinished, unsupported_head
from aggarray.storage.urls import is_remote

#: Suffixes of data files, which are never unrelated.
_DATA = """
    .nc .nc3 .nc4 .nca .ncx .cdf .netcdf .h4 .h5 .hdf .hdf4 .hdf5 .he4 .he5 .zarr .grb .grb2 .grib .grib2 .bufr .tif .tiff .fits
    .mat .npy .npz .parq .parquet .zip .tar .tgz .gz .bz2 .xz .zst .7z
"""
#: Suffixes of files that hold no arrays.
_OTHER = """
    .txt .md .rst .tex .html .htm .css .js .xml .json .jsonl .yaml .yml .toml .ini .cfg .conf .csv .tsv .xls .xlsx .ods .doc
    .docx .odt .ppt .pptx .pdf .ps .eps .png .jpg .jpeg .gif .svg .bmp .webp .ico .mp4 .mov .avi .mp3 .wav .py .pyc .ipynb .sh
    .bash .csh .r .jl .m .ncl .f90 .c .o .so .log .out .err .lock .idx .md5 .sha1 .sha256 .bak .db
"""
_DATA_SUFFIXES, _OTHER_SUFFIXES = frozenset(_DATA.split()), frozenset(_OTHER.split())
#: Control characters that text files contain.
_BLANKS = b"\t\n\v\f\r\x1b"


def is_unrelated(path: str) -> bool:
    """Return whether a file that was found, not named, is not data.

    Reads the beginning of a local file without the suffix of data. Remote files are judged by their name.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _DATA_SUFFIXES or is_unfinished(path):
        return False
    if is_remote(path):
        return suffix in _OTHER_SUFFIXES and suffix not in (".json", ".idx")
    if not os.path.isfile(path):
        return False
    try:
        identify(path)
    except MissingFileError:
        return False
    except FormatError:
        return suffix in _OTHER_SUFFIXES or _is_other(path)
    return False


def _is_other(path: str) -> bool:
    """Return whether an unrecognised file is empty, text or a document."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    unsupported = unsupported_head(head) if head else None
    if unsupported is not None:
        return unsupported[0].startswith(("a PNG", "a JPEG", "a PDF"))
    return not any(byte < 32 and byte not in _BLANKS for byte in head)
