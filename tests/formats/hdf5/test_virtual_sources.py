"""Sources of virtual datasets: strided, nested and overlapping mappings, and sources that are gone, changed or damaged."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from h5py import h5s
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.cli import commands
from aggarray.errors import ChangedFileError
from aggarray.export.extract import extract
from tests.formats.hdf5.test_virtual import check, files_of, source, values, virtual_file

Slab = tuple[int, int, int, int]


def end(slab: Slab) -> int:
    start, stride, count, block = slab
    return start + (count - 1) * stride + block


def selected(shape: tuple[int, ...], chosen: list[Slab]) -> h5s.SpaceID:
    space = h5s.create_simple(shape)
    start, stride, count, block = map(tuple, zip(*chosen, strict=True))
    space.select_hyperslab(start, count, stride, block)
    return space


Mapping = tuple[list[Slab], list[Slab], str]


def written(path: Path, name: str, shape: tuple[int, ...], dtype: str, mappings: list[Mapping], sizes: Any, fill: int) -> Path:
    """Write a virtual dataset; ``mappings``: own selection, that of the source, file."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for own, part, file in mappings:
        properties.set_virtual(selected(shape, own), file.encode(), b"d", selected(sizes[file], part))
    properties.set_fill_value(np.array(fill, dtype))
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), h5s.create_simple(shape), properties)
    return path


@st.composite
def mapped(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[list[Slab], list[Slab], tuple[int, ...]]:
    """Draw selections of a dataset and of a source, and the size of the source."""
    own, part, size = [], [], []
    for n in shape:
        block = draw(st.integers(1, n))
        stride = block + draw(st.integers(0, 2))
        start = draw(st.integers(0, n - block))
        count = draw(st.integers(1, 1 + (n - start - block) // stride))
        own.append((start, stride, count, block))
        total = count * block
        inner = draw(st.sampled_from([k for k in range(1, total + 1) if total % k == 0]))
        slab = draw(st.integers(0, 2)), inner + draw(st.integers(0, 2)), total // inner, inner
        part.append(slab)
        size.append(end(slab) + draw(st.integers(0, 1)))
    return own, part, tuple(size)


@given(st.data())
def test_random_mappings(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Strides, blocks, overlaps, casts, missing files, and virtual datasets of virtual datasets read as h5py reads them."""
    folder, draw = tmp_path_factory.mktemp("mapped"), data.draw
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    sizes: dict[str, tuple[int, ...]] = {}

    def dataset(file: str, size: tuple[int, ...], depth: int) -> None:
        dtype = draw(st.sampled_from(["f8", ">f4", "i2", "i4", "u1"]))
        if depth and draw(st.booleans()):
            virtual(folder / file, "d", size, dtype, depth - 1)
        elif draw(st.integers(0, 6)):
            stored = {"chunks": tuple(-(-n // 2) for n in size)} if draw(st.booleans()) else {}
            source(folder / file, (np.arange(np.prod(size)) % 120).reshape(size).astype(dtype), **stored)

    def virtual(path: Path, name: str, size: tuple[int, ...], dtype: str, depth: int) -> None:
        mappings = []
        for number in range(draw(st.integers(1, 3))):
            own, part, own_size = draw(mapped(size))
            file = f"{path.stem}-{number}.h5"
            sizes[file] = own_size
            dataset(file, own_size, depth)
            mappings.append((own, part, file))
        written(path, name, size, dtype, mappings, sizes, draw(st.integers(0, 3)))

    virtual(folder / "v.h5", "v", shape, draw(st.sampled_from(["f8", "f4", "i4", ">f4"])), 2)
    a = aa.open(folder / "v.h5")["v"]
    with h5py.File(folder / "v.h5") as file:
        # HDF5 forgets the fill value where mappings overlap elsewhere: it reads single elements.
        dataset = file["v"]
        elements = np.array([dataset[index] for index in np.ndindex(shape)])
    expected = elements.reshape(shape).astype(a.dtype)
    assert a[...].tobytes() == expected.tobytes()
    for n in range(shape[0]):
        np.testing.assert_array_equal(a.lazy[n][...], expected[n])
    for found in a.sources():  # what is read directly has its part and its place
        if found.part and str(found.uri).endswith("v.h5") is False and "assembled" not in "".join(found.conversions):
            with h5py.File(found.uri) as file:
                part = file["d"][...][np.ix_(*(np.r_[p] if isinstance(p, slice) else p for p in found.part))]
            np.testing.assert_array_equal(part.astype(a.dtype), a[found.location].reshape(part.shape))


@pytest.fixture
def overlapping(tmp_path: Path) -> Path:
    """A virtual dataset over two files that overlap in one of three rows."""
    layout = h5py.VirtualLayout((3, 4), "f8")
    layout[0:2] = source(tmp_path / "a.h5", values((2, 4), 1))
    layout[1:3] = source(tmp_path / "b.h5", values((2, 4), 50))
    return virtual_file(tmp_path / "v.h5", layout, fill=-1)


def change(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["more"] = np.zeros(1000)


def opened_again(path: Path, how: str) -> aa.MasterArray:
    """Open a virtual dataset as scanned, from an index, or as another process receives it."""
    agg = aa.open(path)
    if how == "index":
        agg.save(path.with_suffix(".nca"))
        return aa.open(path.with_suffix(".nca"))["v"]
    return pickle.loads(pickle.dumps(agg["v"])) if how == "pickle" else agg["v"]


@pytest.mark.parametrize("how", ["scan", "index", "pickle"])
def test_sources_that_are_gone_or_changed(overlapping: Path, how: str) -> None:
    a = opened_again(overlapping, how)
    assert a.lazy[1].sources()[1:] and files_of(a.lazy[1]) == ["a.h5", "b.h5", "v.h5"]
    beside = overlapping.parent
    change(beside / "b.h5")
    with pytest.raises(ChangedFileError, match=r"b\.h5.*v\.h5"):
        a[1]
    assert a[0].tolist() == [1, 2, 3, 4]  # a.h5 alone has it
    (beside / "a.h5").rename(beside / "c.h5")
    with pytest.raises(aa.MissingFileError, match=r"a\.h5.*v\.h5.*missing='fill'"):
        a[1]


def test_missing_sources_are_filled_on_request(overlapping: Path) -> None:
    a = aa.open(overlapping, missing="fill")["v"]
    (overlapping.parent / "b.h5").unlink()
    assert a[...].tolist()[0] == [1, 2, 3, 4] and np.isnan(a[1:]).all()
    assert a.read(masked=True).mask.tolist() == [[False] * 4, [True] * 4, [True] * 4]


def test_check_names_source_and_virtual_file(overlapping: Path) -> None:
    aa.open(overlapping).save(overlapping.with_suffix(".nca"))
    agg, folder = aa.open(overlapping.with_suffix(".nca")), overlapping.parent
    assert agg.check(checksum=True).ok
    (folder / "a.h5").unlink()
    change(folder / "b.h5")
    problems = {(p.kind, os.path.basename(p.file or "")): p.message for p in agg.check().problems}
    assert set(problems) == {("missing", "a.h5"), ("changed", "b.h5")}
    assert all(f"a source of v in {overlapping}" in text for text in problems.values())


def test_check_notices_a_virtual_file_whose_values_all_lie_elsewhere(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((2, 3), "f8")
    layout[:] = source(tmp_path / "a.h5", values((2, 3)))
    aa.open(virtual_file(tmp_path / "v.h5", layout)).save(tmp_path / "i.nca")
    agg = aa.open(tmp_path / "i.nca")
    assert agg.check().ok
    (tmp_path / "v.h5").unlink()
    assert [(p.kind, p.file) for p in agg.check().problems] == [("missing", str(tmp_path / "v.h5"))]


@pytest.mark.parametrize("is_lost", [False, True])
def test_sources_that_give_no_values_when_opened(overlapping: Path, is_lost: bool) -> None:
    path = overlapping.parent / "b.h5"
    if is_lost:
        with h5py.File(path, "a") as file:
            del file["d"]
    else:
        path.unlink()
    agg = aa.open(overlapping)
    (skipped,) = agg.skipped
    assert (skipped.file, skipped.variable) == (str(overlapping), "v")
    assert f"{path}: {'no dataset' if is_lost else 'no such file'}" in skipped.reason
    assert agg["v"][...].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [-1] * 4]
    agg.save(overlapping.with_suffix(".nca"))
    for one in (agg, aa.open(overlapping.with_suffix(".nca"))):
        assert one["v"][2].tolist() == [-1] * 4 and [s.reason for s in one.skipped] == [skipped.reason]
        (problem,) = one.check().problems
        assert (problem.kind, problem.file) == ("unreadable" if is_lost else "missing", str(path))
        assert f"a source of v in {overlapping}" in problem.message
    if not is_lost:
        source(path, values((2, 4)))
        with pytest.raises(ChangedFileError, match=r"did not exist when it was scanned.*b\.h5.*v\.h5"):
            agg["v"][2]
        assert [p.kind for p in agg.check().problems] == ["changed"]


def test_a_coordinate_without_its_source_is_reported(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((2,), "f8")
    layout[:] = h5py.VirtualSource("gone.h5", "d", (2,))
    path = virtual_file(tmp_path / "v.h5", layout, name="x")
    with h5py.File(path, "a") as file:
        file["x"].make_scale("x")
        file["v"] = values((2,))
        file["v"].dims[0].attach_scale(file["x"])
    assert [(s.variable, "gone.h5: no such file" in s.reason) for s in aa.open(path).skipped] == [("x", True)]


def test_nested_virtual_datasets_are_cut_to_their_leaves(tmp_path: Path) -> None:
    inner = h5py.VirtualLayout((6, 4), "i2")
    inner[0:2] = source(tmp_path / "a.h5", values((2, 4), dtype="i4"))
    inner[3:6] = source(tmp_path / "b.h5", values((3, 4), 100_000, "i4"))
    virtual_file(tmp_path / "inner.h5", inner, fill=-5, name="d")
    layout = h5py.VirtualLayout((3, 3), "f8")
    layout[:] = h5py.VirtualSource("inner.h5", "d", (6, 4))[1:6:2, 1:4]
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert a[2].tolist() == [100_009, 100_010, 100_011]  # converted once: not to int16 between
    assert [(os.path.basename(str(s.uri)), s.part) for s in a.sources()] == [
        ("a.h5", (slice(1, 2, 1), slice(1, 4, 1))),
        ("b.h5", (slice(0, 3, 2), slice(1, 4, 1))),
    ]
    layout = h5py.VirtualLayout((6, 4), "f8")
    layout[:] = h5py.VirtualSource("inner.h5", "d", (6, 4))
    a = aa.open(virtual_file(tmp_path / "w.h5", layout, name="w"))["w"]
    assert files_of(a.lazy[2]) == ["inner.h5", "w.h5"] and (a[2] == -5).all()
    (tmp_path / "inner.h5").unlink()
    with pytest.raises(aa.MissingFileError, match=r"inner\.h5.*w\.h5"):
        a[2]
    assert a[0].tolist() == [0, 1, 2, 3]


def test_files_of_nested_sources_are_known(tmp_path: Path) -> None:
    """Unlimited and numbered sources, the file itself, and external storage."""
    values((2, 3)).tofile(tmp_path / "raw.bin")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("d", (2, 3), "f8", external=[(str(tmp_path / "raw.bin"), 0, 48)])
    inner = h5py.VirtualLayout((2, 3), "f8")
    inner[:] = h5py.VirtualSource("b.h5", "d", (2, 3))
    virtual_file(tmp_path / "inner.h5", inner, name="d")
    layout = h5py.VirtualLayout((4, 3), "i4")
    layout[0:2] = h5py.VirtualSource("inner.h5", "d", (2, 3))
    layout[2:4] = h5py.VirtualSource(".", "own", (2, 3))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["own"] = values((2, 3))
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert [files_of(a.lazy[n]) for n in (0, 2)] == [["b.h5", "inner.h5", "raw.bin", "v.h5"], ["v.h5"]]
    assert ("own", str(tmp_path / "v.h5")) in {(s.variable, s.uri) for s in a.sources()}
    with open(tmp_path / "raw.bin", "ab") as raw:
        raw.write(b"more")
    with pytest.raises(ChangedFileError, match=r"raw\.bin.*v\.h5"):
        a[0]
    assert [p.kind for p in aa.open(tmp_path / "v.h5").check().problems] == []


@pytest.mark.parametrize("first", ["v.h5", "w.h5"])
def test_cycles_raise_an_error(tmp_path: Path, first: str) -> None:
    """The HDF5 library ends the process that reads one."""
    for name, other in (("v.h5", first), ("w.h5", "v.h5")):
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(other, "v", (3,))
        virtual_file(tmp_path / name, layout)
    agg = aa.open(tmp_path / "v.h5")
    assert [("refers to itself" in s.reason, s.variable) for s in agg.skipped] == [(True, "v")]
    with pytest.raises(aa.FormatError, match="refers to itself"):
        agg["v"][...]
    with pytest.raises(aa.FormatError, match="refers to itself"):
        aa.SubArray.from_file(tmp_path / "v.h5", "v").read()


def test_a_damaged_source_is_isolated(overlapping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the region of the damaged file fails, in another process."""
    path = overlapping.parent / "b.h5"
    path.write_bytes(path.read_bytes()[:600])
    from aggarray.formats.hdf5 import isolated

    calls: list[str] = []
    call = isolated.call_isolated

    def noted(file: str, method: str, *arguments: Any) -> Any:
        calls.append(method)
        return call(file, method, *arguments)

    monkeypatch.setattr(isolated, "call_isolated", noted)
    a = aa.open(overlapping)["v"]
    assert a[0].tolist() == [1, 2, 3, 4] and calls == []
    with pytest.raises(aa.FormatError, match=r"v\.h5"):
        a[1]
    assert "values" in calls


def test_roots_hold_for_nested_and_overlapping_sources(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    secret, inside = str(tmp_path / "out" / "b.h5"), tmp_path / "in"
    source(tmp_path / "out" / "b.h5", values((2, 4)))
    inner = h5py.VirtualLayout((2, 4), "f8")
    inner[:] = h5py.VirtualSource(secret, "d", (2, 4))
    virtual_file(inside / "inner.h5", inner, name="d")
    layout = h5py.VirtualLayout((5, 4), "f8")
    layout[0:2] = source(inside / "a.h5", values((2, 4)))
    layout[1:3] = h5py.VirtualSource(secret, "d", (2, 4))
    layout[3:5] = h5py.VirtualSource("inner.h5", "d", (2, 4))
    agg = aa.open(virtual_file(inside / "v.h5", layout), roots=[inside])
    agg.save(tmp_path / "i.nca")
    for one in (agg, aa.open(tmp_path / "i.nca", roots=[inside])):
        assert one["v"][0].tolist() == [0, 1, 2, 3] and secret not in {s.uri for s in one["v"].sources()}
        for row in (1, 2, 3):
            with pytest.raises(aa.ForbiddenPathError, match=r"b\.h5"):
                one["v"][row]
    assert f"{secret}: outside the folders" in agg.skipped[0].reason
    # An index from elsewhere names sources, too.
    aa.open(inside / "v.h5").save(tmp_path / "free.nca")
    with pytest.raises(aa.IndexFileError, match=r"b\.h5"):
        aa.open(tmp_path / "free.nca", roots=[inside])["v"][1]


def test_sources_are_searched_as_hdf5_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, name in enumerate(("main", "work", "prefix", "real")):
        (tmp_path / name).mkdir()
        source(tmp_path / name / "s.h5", values((2,), 10 * n))
    (tmp_path / "work" / "s.h5").rename(tmp_path / "work" / "t.h5")
    (tmp_path / "real" / "s.h5").rename(tmp_path / "real" / "u.h5")
    monkeypatch.chdir(tmp_path / "work")
    names = ["s.h5", "t.h5", "u.h5", "/no/such/folder/s.h5", str(tmp_path / "prefix" / "s.h5"), "../prefix/s.h5"]
    layout = h5py.VirtualLayout((2 * len(names),), "f8")
    for n, name in enumerate(names):
        layout[2 * n : 2 * n + 2] = h5py.VirtualSource(name, "d", (2,))
    virtual_file(tmp_path / "real" / "v.h5", layout)
    (tmp_path / "main" / "v.h5").symlink_to(tmp_path / "real" / "v.h5")
    a = check(tmp_path / "main" / "v.h5")
    found = [Path(str(s.uri)).resolve().relative_to(tmp_path) for s in a.sources()]
    assert list(map(str, found)) == ["main/s.h5", "work/t.h5", "real/u.h5", "main/s.h5", "prefix/s.h5", "prefix/s.h5"]
    code = "import sys, h5py, aggarray as aa; a, f = aa.open(sys.argv[1])['v'], h5py.File(sys.argv[1])"
    code += "; print((a[...] == f['v'][...]).all(), [s.uri for s in a.sources()])"
    environment = {**os.environ, "HDF5_VDS_PREFIX": "${ORIGIN}/../prefix"}
    command = [sys.executable, "-c", code, str(tmp_path / "main" / "v.h5")]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout.startswith("True") and made.stdout.count("prefix/s.h5") == 4


def test_indexes_resolve_the_sources(overlapping: Path, tmp_path: Path) -> None:
    """A tree that is moved as a whole reads; an index elsewhere with other paths does with relocate."""
    aa.open(overlapping).save(overlapping.with_suffix(".nca"))
    expected = aa.open(overlapping)["v"][...]
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("a.h5", "b.h5", "v.h5", "v.nca"):
        (tmp_path / name).rename(moved / name)
    agg = aa.open(moved / "v.nca")
    np.testing.assert_array_equal(agg["v"][...], expected)
    assert {os.path.dirname(str(s.uri)) for s in agg["v"].sources()} == {str(moved)} and agg.check().ok
    extract(agg["v"], tmp_path / "o.nc")
    with h5py.File(tmp_path / "o.nc") as file:
        assert {os.path.basename(uri.decode()) for uri in file["source_files/uri"][...]} == {"a.h5", "b.h5", "v.h5"}


def test_explain_lists_the_sources(overlapping: Path) -> None:
    result = CliRunner().invoke(commands, ["explain", str(overlapping), "--sel", "dim_0=1", "--json"])
    listed = [(os.path.basename(s["uri"]), s["variable"], s["conversions"]) for s in json.loads(result.output)[0]["sources"]]
    assembled = ["assembled by HDF5 in v of v.h5"]
    assert listed == [
        ("v.h5", "v", ["size-1 dimension with dim_0 -> without"]),
        ("a.h5", "d", assembled),
        ("b.h5", "d", assembled),
    ]
