"""Errors of files and folders in formats that aggarray does not read."""

import gzip
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import netCDF4
import numpy as np
import pyarrow  # type: ignore[import-untyped,unused-ignore]
import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]
import pytest
import zarr

import aggarray as aa
from aggarray.formats.unsupported import unsupported_head

ICE = "ICE\N{ICE CUBE}CHUNK".encode() + b"Ic-2.0"


def data(path: Path) -> bytes:
    """Write a netCDF-4 file and return its bytes."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 5000)
        file.createVariable("v", "f8", ("x",))[:] = np.random.default_rng(0).random(5000)
    return path.read_bytes()


FILES = {
    "a.grib": (b"GRIB\0\0\0\2" + bytes(600), "a GRIB file"),
    "a.bufr": (b"BUFR" + bytes(600), "a BUFR file"),
    "a.tif": (b"II*\0" + bytes(100), "a TIFF or GeoTIFF image"),
    "b.tif": (b"MM\0*" + bytes(100), "a TIFF or GeoTIFF image"),
    "c.tif": (b"II+\0" + bytes(100), "a BigTIFF image"),
    "a.hdf": (b"\x0e\x03\x13\x01" + bytes(100), "an HDF4 file"),
    "a.cdf": (b"\xcd\xf3\0\1\0\0\xff\xff" + bytes(100), "a NASA CDF file"),
    "page.nc": (b"\xef\xbb\xbf\n <!DOCTYPE HTML><title>404</title>", "an HTML page"),
    "page2.nc": (b"<html><body>Login", "an HTML page"),
    "denied.nc": (b'<?xml version="1.0"?><Error><Code>AccessDenied', "an XML document"),
    "denied.json": (b'{"error": {"code": 401}}', "a JSON document"),
    "empty.nc": (b"", "an empty file"),
    "lfs.nc": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n", "a pointer of Git LFS"),
    "annex.nc": (b"/annex/objects/MD5E-s7--0.nc\n", "a pointer of git-annex"),
    "zeros.nc": (bytes(4096), "a file that begins with zeros"),
    "a.mat": (b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(100), "a MATLAB file of version 5"),
    "a.fits": (b"SIMPLE  =                    T", "a FITS file"),
    "a.gpkg": (b"SQLite format 3\0" + bytes(100), "an SQLite database"),
    "a.dds": (b"Dataset {\n    Float64 v[x = 3];\n} v;\n", r"the description \(DDS\)"),
    "snapshot": (ICE, "a file of an Icechunk repository"),
}


@pytest.mark.parametrize("name", FILES)
def test_error_of_a_file_names_its_format(tmp_path: Path, name: str) -> None:
    content, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    for source in (path, tmp_path):
        with pytest.raises(aa.FormatError, match=words) as caught:
            aa.open(source)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value) and ";" in str(caught.value)


def test_errors_of_files_of_other_libraries(tmp_path: Path) -> None:
    content = data(tmp_path / "a.nc")
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "a.npz", np.arange(3))
    (tmp_path / "a.nc.gz").write_bytes(gzip.compress(content))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.nc")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2]}), tmp_path / "a.parquet")
    kinds = {
        "npy": "a NumPy file",
        "npz": "a zip archive",
        "gz": "a gzip file",
        "tar": "a tar archive",
        "parquet": "a Parquet file",
    }
    for suffix, words in kinds.items():
        [path] = tmp_path.glob(f"*.{suffix}")
        with pytest.raises(aa.FormatError, match=words):
            aa.open(path)


def test_error_of_a_zipped_zarr_store_gives_the_url(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        group = zarr.create_group(store)
        group.create_array("v", data=np.arange(3.0))
    with pytest.raises(aa.FormatError, match=r"a zip archive.* as zip://::PATH"):
        aa.open(path)
    assert aa.open(f"zip://::{path}")["v"][:].tolist() == [0, 1, 2]


def folder(path: Path, names: dict[str, bytes]) -> Path:
    for name, content in names.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


REPOSITORY = {
    "refs/branch.main/ref.json": b'{"snapshot":"A"}',
    "snapshots/A": ICE,
    "manifests/B": ICE,
    "transactions/A": ICE,
    "chunks/CDF": b"CDF\x01 this is a chunk and no file",
    "config.yaml": b"storage: null",
}
FOLDERS = {
    "an Icechunk repository": REPOSITORY,
    "a TileDB array or group": {"__schema/__1_1_a": b"x", "__fragments/__1/a0.tdb": b"x", "__commits/__1.wrt": b""},
    "an N5 container": {"attributes.json": b'{"n5": "4.0.0"}', "v/attributes.json": b"{}", "v/0": b"x"},
    "a folder of Parquet files": {"part-0.parquet": b"PAR1....PAR1", "_metadata": b"PAR1"},
}


@pytest.mark.parametrize("words", FOLDERS)
def test_error_of_a_folder_names_its_format(tmp_path: Path, words: str) -> None:
    path = folder(tmp_path / "archive" / "other", FOLDERS[words])
    for source in (path, tmp_path / "archive", f"{path}/"):
        with pytest.raises(aa.FormatError, match=words) as caught:
            aa.open(source)
        assert str(caught.value).startswith(f"{words}, which aggarray does not read: {path}; ")
    # Beside data it is skipped as one item.
    data(tmp_path / "archive" / "a.nc")
    agg = aa.open(tmp_path / "archive")
    assert agg.names == ("v",) and [(s.file, words in s.reason) for s in agg.skipped] == [(str(path), True)]


def test_error_of_a_file_in_an_icechunk_repository_names_the_repository(tmp_path: Path) -> None:
    path = folder(tmp_path / "repo", REPOSITORY | {"chunks/A1": b"\x01\x02"})
    for name in ("chunks/A1", "manifests/B"):
        with pytest.raises(aa.FormatError, match=rf"a part of .*repo, an Icechunk repository.*{name}.*to_zarr"):
            aa.open(path / name)


def test_folders_with_names_of_repositories_hold_data(tmp_path: Path) -> None:
    for name in ("snapshots", "refs", "chunks", "manifests"):
        (tmp_path / name).mkdir()
    data(tmp_path / "snapshots" / "a.nc")
    (tmp_path / "attributes.json").write_text(json.dumps({"title": "mine"}))
    agg = aa.open(tmp_path)
    assert agg.names == ("v",) and agg.skipped == ()


def test_unfinished_downloads(tmp_path: Path) -> None:
    whole = data(tmp_path / "a.nc")
    for content in (whole[: len(whole) // 2], whole[:100], bytes(1000), b""):
        path = tmp_path / "b.nc.part"
        path.write_bytes(content)
        with pytest.raises(aa.FormatError, match=r"an unfinished download.*b\.nc\.part.* \(.+\)$"):
            aa.open(path)
    path.write_bytes(whole)
    assert aa.open(path).names == ("v",)


def test_broken_links(tmp_path: Path) -> None:
    (tmp_path / "a.nc").symlink_to(".git/annex/objects/Xx/Yy/MD5E-s7--0.nc/MD5E-s7--0.nc")
    (tmp_path / "b.nc").symlink_to("gone.nc")
    with pytest.raises(aa.MissingFileError, match=r"a git-annex link .*a\.nc.* git annex get"):
        aa.open(tmp_path / "a.nc")
    with pytest.raises(aa.MissingFileError, match=r"a link to 'gone\.nc', which does not exist.*b\.nc"):
        aa.open(tmp_path / "b.nc")


def test_data_files_are_not_unsupported(tmp_path: Path) -> None:
    assert unsupported_head(data(tmp_path / "a.nc")[:512]) is None and unsupported_head(b"CDF\x01" + bytes(100)) is None
    shutil.copytree(Path(aa.__file__).parents[1] / "sample_data" / "archive", tmp_path / "archive")
    assert aa.open(tmp_path / "archive").skipped == () and os.path.isdir(tmp_path / "archive")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(aa.FormatError, match="an empty zip archive"):
        aa.open(tmp_path / "empty.zip")
