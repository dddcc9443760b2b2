"""Hostile HDF5 files: links, external storage, false sizes and decompression bombs."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import aggarray as aa
from aggarray import formats
from aggarray.formats.hdf5.library import check_decoded_sizes
from tests.faults.hostile import ROOT, looked_at, unborne
from tests.support.netcdf import cube, write

Made = Callable[[h5py.File], None]


def cycle(file: h5py.File) -> None:
    file["v"] = np.zeros(3)
    file["self"] = file["/"]


def two(file: h5py.File) -> None:
    inner = file.create_group("a/b")
    inner["up"] = file["a"]
    file["v"] = np.zeros(3)


def soft_root(file: h5py.File) -> None:
    file["v"] = np.zeros(3)
    file["v"].make_scale("v")
    file["self"] = h5py.SoftLink("/")


def soft_loop(file: h5py.File) -> None:
    file["v"] = np.zeros(3)
    file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")


def wide(file: h5py.File) -> None:
    """Write a dozen groups that each contain all of them: a combinatorial number of paths."""
    groups = [file.create_group(f"g{n}") for n in range(12)]
    for group in groups:
        for n, other in enumerate(groups):
            group[f"x{n}"] = other


def doubling(file: h5py.File) -> None:
    """Write forty levels, each of which contains the next one twice."""
    below = file.create_group("base")
    below["v"] = np.zeros(3)
    for n in range(40):
        level = file.create_group(f"l{n}")
        level["a"], level["b"] = below, below
        below = level


def deep(file: h5py.File) -> None:
    group = file
    for _ in range(10_000):
        group = group.create_group("g")
    group["v"] = np.zeros(3)
    file["v"] = np.zeros(3)


def claim(**how: Any) -> Made:
    return lambda file: file.create_dataset("v", **{"dtype": "f4", **how})


def claimed_coordinate(file: h5py.File) -> None:
    file.create_dataset("t", (1 << 40,), "f8", chunks=(1 << 20,)).make_scale("t")
    file.create_dataset("v", (1 << 40,), "f4", chunks=(1 << 20,)).dims[0].attach_scale(file["t"])


def long_texts(file: h5py.File) -> None:
    kind = h5py.h5t.C_S1.copy()
    kind.set_size((1 << 31) - 1)
    h5py.Dataset(h5py.h5d.create(file.id, b"v", kind, h5py.h5s.create_simple((1000,)))).make_scale("v")


def bits(payload: bytes) -> Made:
    """Return a writer of a chunk of few bits per number, deflated twice, which only HDF5 decodes."""

    def make(file: h5py.File) -> None:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((1000,))
        made.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
        made.set_deflate(9)
        made.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
        space = h5py.h5s.create_simple((1000,))
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, space, made))
        dataset.id.write_direct_chunk((0,), payload)
        dataset.make_scale("v")

    return make


def bomb(payload: bytes, dtype: str = "f4", **how: Any) -> Made:
    def make(file: h5py.File) -> None:
        made = file.create_dataset("v", (1000,), dtype, chunks=(1000,), **how)
        made.id.write_direct_chunk((0,), payload)
        made.make_scale("v")

    return make


SWOLLEN = zlib.compress(bytes(1 << 27), 9)
FILES: dict[str, Made] = {
    **{f.__name__: f for f in (cycle, two, soft_root, soft_loop, wide, doubling, deep, claimed_coordinate, long_texts)},
    "one piece of 2^40": claim(shape=(1 << 40,)),
    "chunks of 2^40": claim(shape=(1 << 40,), chunks=(16,), compression="gzip"),
    "a product beyond 64 bits": claim(shape=(1 << 31, 1 << 31, 1 << 31), chunks=(1, 1, 1 << 20)),
    "growing to 2^60": claim(shape=(1 << 60,), chunks=(1 << 20,), maxshape=(None,)),
    "rows of 2^40": claim(shape=(1 << 40,), chunks=(1 << 20,), dtype=h5py.vlen_dtype("f4"), compression="gzip"),
    "texts of 2^40": claim(shape=(1 << 40,), chunks=(1 << 20,), dtype=h5py.string_dtype()),
    "deflate": bomb(SWOLLEN, compression="gzip"),
    "deflated twice": bomb(zlib.compress(SWOLLEN, 9), compression="gzip"),
    "deflated numbers of bits": bomb(SWOLLEN, dtype="i4", scaleoffset=0, compression="gzip"),
    "deflated twice, of bits": bits(zlib.compress(SWOLLEN, 9)),
    "shuffled": bomb(SWOLLEN, compression="gzip", shuffle=True),
    "lzf": bomb(b"\x1f\xff" * 4000, compression="lzf"),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    result = {}
    for number, (name, make) in enumerate(FILES.items()):
        result[name] = str(tmp_path / f"{number}.h5")
        with h5py.File(result[name], "w", libver="latest" if number % 2 else None) as file:
            make(file)
    return result


def test_hostile_hdf5_files(files: dict[str, str], tmp_path: Path) -> None:
    assert unborne(looked_at(files, tmp_path)) == {}


@pytest.mark.parametrize("name", ["deflate", "shuffled", "deflated numbers of bits", "deflated twice, of bits"])
def test_decompression_bombs_raise_before_hdf5_decodes(files: dict[str, str], name: str) -> None:
    with h5py.File(files[name]) as file, pytest.raises((ValueError, aa.FormatError), match=r"4000|97536|more"):
        check_decoded_sizes(file["v"].id)


def test_cyclic_groups_hide_nothing(files: dict[str, str]) -> None:
    assert aa.open(files["cycle"])["v"][...].tolist() == aa.open(files["soft_root"])["v"][...].tolist() == [0, 0, 0]
    agg = aa.open(files["deep"])
    assert agg.names == ("v",) and "more than 64 deep" in agg.skipped[0].reason


# External files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder ``in`` that may be read, next to ``out`` with three secrets, in dataset ``t`` of a file and as bytes."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    with h5py.File(tmp_path / "out" / "secret.h5", "w") as file:
        file["t"] = np.array([11.0, 22.0, 33.0])
        file["t"].make_scale("t")
    np.array([11.0, 22.0, 33.0]).tofile(tmp_path / "out" / "raw")
    return tmp_path


def external_link(file: h5py.File, out: Path) -> None:
    file["q"] = h5py.ExternalLink(str(out / "secret.h5"), "/t")


def soft_and_external(file: h5py.File, out: Path) -> None:
    file["e"] = h5py.ExternalLink(str(out / "secret.h5"), "/")
    file["q"] = h5py.SoftLink("/e/t")


def external_storage(file: h5py.File, out: Path) -> None:
    file.create_dataset("q", (3,), "f8", external=[(str(out / "raw"), 0, 24)]).make_scale("q")


def virtual(file: h5py.File, source: Path | str, name: str) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(source), name, (3,))
    file.create_virtual_dataset("q", layout).make_scale("q")


def virtual_by_link(file: h5py.File, out: Path) -> None:
    file["e"] = h5py.ExternalLink(str(out / "secret.h5"), "/")
    virtual(file, ".", "/e/t")


def virtual_of_virtual(file: h5py.File, out: Path) -> None:
    between = out.parent / "in" / "between.h5"
    with h5py.File(between, "w") as other:
        virtual(other, out / "secret.h5", "t")
    virtual(file, between, "q")


def virtual_of_external(file: h5py.File, out: Path) -> None:
    between = out.parent / "in" / "between.h5"
    with h5py.File(between, "w") as other:
        external_storage(other, out)
    virtual(file, between, "q")


def virtual_through_a_link(file: h5py.File, out: Path) -> None:
    (out.parent / "in" / "s0.h5").symlink_to(out / "secret.h5")
    virtual(file, out.parent / "in" / "s0.h5", "t")


LEAKS = [
    *(external_link, soft_and_external, external_storage, virtual_by_link, virtual_of_virtual, virtual_of_external),
    *(virtual_through_a_link, lambda file, out: virtual(file, out / "secret.h5", "t")),
]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("netcdf", [True, False])
def test_nothing_outside_the_roots_is_seen(place: Path, leak: Callable[[h5py.File, Path], None], netcdf: bool) -> None:
    path = place / "in" / "a.nc"
    if netcdf:
        write(path, cube([1.0, 2.0]))
    with h5py.File(path, "a") as file:
        leak(file, place / "out")
        file["plain"] = np.zeros(2)
    said = []
    try:
        agg = aa.open(path, roots=[place / "in"])
    except aa.AggarrayError as error:
        said.append(str(error))
    else:
        for array in agg:
            for one in (array, *array.coords.values()):
                try:
                    said.append(str(one.read()))
                except aa.AggarrayError as error:
                    said.append(str(error))
        said.append(str([v.values for s in agg._provenance.structures() for v in s.variables]))
    assert said and not [text for text in said if "22." in text]


def test_external_links_are_not_opened(place: Path) -> None:
    """Opening a pipe would block until its other end is opened."""
    os.mkfifo(place / "out" / "pipe")
    path = place / "in" / "a.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.zeros(3)
        file["e"] = h5py.ExternalLink(str(place / "out" / "pipe"), "/")
        file["q"] = h5py.SoftLink("/e/t")
    assert unborne(looked_at({"pipe": str(path)}, place)) == {}
    agg = aa.open(path)
    assert agg.names == ("v",) and {s.variable for s in agg.skipped} == {"e", "q"}
    # A process that waits for the pipe times out.
    line = (
        "import sys; from aggarray.formats import partial_scan, hdf5; from aggarray.formats.hdf5 import library; "
        "library.scan_by_library(sys.argv[1]); "
        "assert hdf5.FORMAT.scan_partially(sys.argv[1], partial_scan.PartialScanRequest({'q': 1})) is None"
    )
    subprocess.run([sys.executable, "-c", line, str(path)], cwd=ROOT, timeout=60, check=True)


@pytest.mark.parametrize("leak", [external_link, soft_and_external])
def test_reads_do_not_follow_external_links(place: Path, leak: Callable[[h5py.File, Path], None]) -> None:
    """Names of linked variables can come from an index without a scan."""
    with h5py.File(place / "in" / "a.h5", "w") as file:
        leak(file, place / "out")
    with pytest.raises(aa.NotFoundError):
        formats.open_file(place / "in" / "a.h5").read("q", (slice(0, 3, 1),))


def test_external_values_are_read_without_roots(place: Path) -> None:
    path = place / "in" / "a.h5"
    with h5py.File(path, "w") as file:
        external_storage(file, place / "out")
    assert aa.open(path)["q"][...].tolist() == [11.0, 22.0, 33.0]


def test_foreign_index_obeys_the_roots(place: Path) -> None:
    """Fragment metadata may lie in external files too, and errors quote it."""
    path = place / "in" / "index.nc"
    terms = {"map": (("r", "n"), np.array([[3]])), "u": ((), np.array("a.nc")), "i": ((), np.array("t"))}
    told = {"aggregated_dimensions": "time", "aggregated_data": "map: m uris: u identifiers: i"}
    write(path, {**terms, "tas": ((), 0.0, told)}, {"Conventions": "CF-1.13"})
    np.array([[777888999]], "i8").tofile(place / "out" / "raw")
    with h5py.File(path, "a") as file:
        file.create_dataset("m", (1, 1), "i8", external=[(str(place / "out" / "raw"), 0, 8)])
    with pytest.raises(aa.IndexFileError) as caught:
        aa.open(path, roots=[place / "in"])
    assert "777888999" not in str(caught.value) and "outside the folders" in str(caught.value)
