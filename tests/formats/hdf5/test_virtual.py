"""Virtual datasets: their sources are partitions, and every value equals that of h5py, bit for bit."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5s
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.export.extract import extract
from aggarray.formats.hdf5.library import H5pyFile
from tests.support.tilings import keys, pick


def values(shape: tuple[int, ...], first: int = 0, dtype: str = "f8") -> np.ndarray:
    return (first + np.arange(np.prod(shape))).reshape(shape).astype(dtype)


def source(path: Path, content: np.ndarray, name: str = "d", **options: Any) -> h5py.VirtualSource:
    """Write a source dataset; return it."""
    with h5py.File(path, "a") as file:
        file.create_dataset(name, data=content, **options)
    return h5py.VirtualSource(str(path.name), name, content.shape, maxshape=options.get("maxshape"))


def virtual_file(path: Path, layout: h5py.VirtualLayout, fill: Any = None, name: str = "v", **attrs: Any) -> Path:
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout, fillvalue=fill).attrs.update(attrs)
    return path


def check(path: Path, name: str = "v", **options: Any) -> aa.MasterArray:
    """Compare all values, and some selections, with those of h5py."""
    a = aa.open(path, **options)[name]
    with h5py.File(path) as file:
        expected = file[name][...]
    found = a[...]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype.newbyteorder("="))
    assert found.tobytes() == np.ascontiguousarray(expected, found.dtype).tobytes()
    for step in (2, -1, -3):
        key = (slice(None, None, step),) * a.ndim
        np.testing.assert_array_equal(a[key], expected[key])
    return a


def files_of(a: aa.MasterArray) -> list[str]:
    return sorted({os.path.basename(str(s.uri)) for s in a.sources()})


def test_many_files_along_a_dimension(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((12, 5, 6), "f4")
    how: list[dict[str, Any]] = [{}, {"chunks": (2, 5, 3), "compression": "gzip", "shuffle": True}, {"chunks": (3, 2, 2)}]
    for n in range(4):
        layout[3 * n : 3 * n + 3] = source(tmp_path / f"s{n}.h5", values((3, 5, 6), 100 * n, "f4"), **how[n % 3])
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert (a.dimensions, a.pmshape, files_of(a)) == (("dim_0", "dim_1", "dim_2"), (4,), [f"s{n}.h5" for n in range(4)])
    assert [(p.data.uri, p.location[0], p.virtual) for p in a.partitions if p.data] == [
        (str(tmp_path / f"s{n}.h5"), (3 * n, 3 * n + 3), False) for n in range(4)
    ]
    assert [s.location[0] for s in a.sources(slice(5, 7))] == [slice(5, 6, 1), slice(6, 7, 1)]


def test_parts_of_sources_in_another_number_of_dimensions(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((4, 5, 6), "i4")
    one = source(tmp_path / "a.h5", values((9, 8, 7), dtype="i4"))
    layout[0] = one[3, 1:6, 1:7]
    layout[1, :, :] = source(tmp_path / "b.h5", values((5, 6), 1000, "i4"))
    layout[2:4, 0:2, 4:6] = one[2:4, 3:5, 0:2]
    a = check(virtual_file(tmp_path / "v.h5", layout, fill=-7))
    assert files_of(a) == ["a.h5", "b.h5", "v.h5"]
    assert (a[3, 4] == -7).all()


def test_a_fill_value_is_where_nothing_is_or_a_source_is_missing(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((6, 4), "f8")
    layout[0:2] = source(tmp_path / "a.h5", values((2, 4)))
    layout[2:4] = source(tmp_path / "b.h5", values((2, 4), 50))
    path = virtual_file(tmp_path / "v.h5", layout, fill=-1.5)
    a = check(path)
    assert files_of(a) == ["a.h5", "b.h5", "v.h5"] and (a[4:] == -1.5).all()
    (tmp_path / "b.h5").rename(tmp_path / "c.h5")
    assert (check(path)[2:4] == -1.5).all()
    with pytest.raises(aa.MissingFileError, match=r"b\.h5"):
        a[2:4]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["d"]
    assert not any(p.data.uri.endswith("a.h5") for p in check(path).partitions if p.data)


def test_sources_in_the_same_file_and_by_absolute_path(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["group/here"] = values((2, 3))
    (tmp_path / "far").mkdir()
    source(tmp_path / "far" / "s.h5", values((2, 3), 10), "in/d")
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[0:2] = h5py.VirtualSource(".", "group/here", (2, 3))
    layout[2:4] = h5py.VirtualSource(str(tmp_path / "far" / "s.h5"), "/in/d", (2, 3))
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert {(s.variable, s.uri) for s in a.sources()} == {
        ("group/here", str(tmp_path / "v.h5")),
        ("in/d", str(tmp_path / "far" / "s.h5")),
    }


def test_selections_with_gaps_are_cut_into_runs(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((6, 8), "f8")
    first = source(tmp_path / "a.h5", values((4, 8)))
    layout[0:2] = first[0:2]
    layout[2:4, ::2] = first[0:2, 0:4]
    layout[4:6, :] = first[::2, :]
    a = check(virtual_file(tmp_path / "v.h5", layout, fill=9))
    assert files_of(a) == ["a.h5", "v.h5"] and a.pmshape == (3, 8)
    assert a.partitions[2, 0].part == (slice(0, 3, 2), slice(0, 1, 1))


def test_interleaved_files_that_grow(tmp_path: Path) -> None:
    """As detectors write them: each of several processes every n-th frame."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for n in range(3):
        source(tmp_path / f"{n}.h5", values((5 - (n == 2), 4), 100 * n), maxshape=(None, 4), chunks=(1, 4))
        space, own = (h5s.create_simple((0, 4), (h5s.UNLIMITED, 4)) for _ in range(2))
        space.select_hyperslab((n, 0), (h5s.UNLIMITED, 1), stride=(3, 1), block=(1, 4))
        own.select_hyperslab((0, 0), (h5s.UNLIMITED, 1), stride=(1, 1), block=(1, 4))
        properties.set_virtual(space, f"{n}.h5".encode(), b"d", own)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        space = h5s.create_simple((0, 4), (h5s.UNLIMITED, 4))
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_DOUBLE, space, properties)
    a = check(tmp_path / "v.h5")
    assert (a.shape, a.pmshape, files_of(a)) == ((14, 4), (14,), ["0.h5", "1.h5", "2.h5"])


def test_hdf5_reads_where_mappings_overlap(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((4, 4), "f8")
    layout[0:3] = source(tmp_path / "a.h5", values((3, 4)))
    layout[2:4] = source(tmp_path / "b.h5", values((2, 4), 90))
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert [p.data and os.path.basename(p.data.uri) for p in a.partitions] == ["a.h5", "v.h5", "b.h5"]
    assert [files_of(a.lazy[n]) for n in (0, 2, 3)] == [["a.h5"], ["a.h5", "b.h5", "v.h5"], ["b.h5"]]


@pytest.mark.parametrize(
    ("stored", "declared", "direct"),
    [
        ("i2", "i4", True),
        (">i2", "<f8", True),
        ("u1", "f4", True),
        (">f4", "<f4", True),
        ("i8", "f4", True),
        ("f8", "f4", False),
        ("i4", "i2", False),
        ("f8", "i4", False),
        ("i1", "u1", False),
    ],
)
def test_other_types_of_sources(tmp_path: Path, stored: str, declared: str, direct: bool) -> None:
    layout = h5py.VirtualLayout((4, 3), declared)
    content = np.array([[1, 2, 3], [100, -5, 7]]).astype(stored)
    layout[0:2] = source(tmp_path / "a.h5", content, chunks=(1, 3), compression="gzip")
    layout[2:4] = source(tmp_path / "b.h5", content)
    a = check(virtual_file(tmp_path / "v.h5", layout))
    assert files_of(a) == ["a.h5", "b.h5", *([] if direct else ["v.h5"])]


def test_attributes_are_those_of_the_virtual_dataset(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((4, 3), "f4")
    content = np.array([[1, 2, -9], [4, -8, 6]])
    for n, dtype in enumerate(("i2", "f4")):
        layout[2 * n : 2 * n + 2] = source(tmp_path / f"{n}.h5", content.astype(dtype))
        with h5py.File(tmp_path / f"{n}.h5", "a") as file:
            file["d"].attrs.update({"units": "furlong", "_FillValue": content.astype(dtype)[0, 0], "scale_factor": 100.0})
    attrs = {"units": "degC", "_FillValue": np.float32(-9), "scale_factor": np.float32(0.5), "long_name": "t"}
    a = aa.open(virtual_file(tmp_path / "v.h5", layout, **attrs))["v"]
    assert (a.units, a.attrs["long_name"], files_of(a)) == ("degC", "t", ["0.h5", "1.h5"])
    with netCDF4.Dataset(tmp_path / "v.h5") as file:
        expected = file["v"][...]
    np.testing.assert_array_equal(np.ma.getmaskarray(a.read(masked=True)), np.ma.getmaskarray(expected))
    np.testing.assert_array_equal(np.ma.filled(a.read(masked=True), 0), np.ma.filled(expected, 0))
    np.testing.assert_allclose(a.to_units("K")[1, 0], 275.15, rtol=1e-6)
    assert "packing float32 x 0.5 + 0 -> float32" in a.sources()[0].conversions


def growing(path: Path, pattern: str, block: int, width: int, fill: float = -1) -> Path:
    """Write a virtual dataset of numbered files of ``block`` rows."""
    with h5py.File(path, "w") as file:
        space = h5s.create_simple((0, width), (h5s.UNLIMITED, width))
        space.select_hyperslab((0, 0), (h5s.UNLIMITED, 1), stride=(block, 1), block=(block, width))
        whole = h5s.create_simple((block, width))
        whole.select_all()
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_virtual(space, os.fsencode(pattern), b"d", whole)
        properties.set_fill_value(np.array(fill, "f8"))
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_DOUBLE, space, properties)
    return path


@pytest.mark.parametrize("present", [(0, 1, 2), (0, 1, 3), (), (0,)])
def test_numbered_files(tmp_path: Path, present: Sequence[int]) -> None:
    path = growing(tmp_path / "v.h5", "part-%b-%%.h5", 3, 4)
    for n in present:
        source(tmp_path / f"part-{n}-%.h5", values((3, 4), 100 * n))
    with h5py.File(path) as file:
        length = file["v"].shape[0]
    a = check(path)
    assert len(a) == length
    assert files_of(a) == [f"part-{n}-%.h5" for n in present if 3 * n < length]


def test_sources_that_grow(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((2, 3), "f8", maxshape=(None, 3))
    grows = source(tmp_path / "a.h5", values((2, 3)), maxshape=(None, 3))
    layout[0 : h5s.UNLIMITED] = grows[0 : h5s.UNLIMITED]
    path = virtual_file(tmp_path / "v.h5", layout, fill=-1)
    assert files_of(check(path)) == ["a.h5"]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["d"].resize((7, 3))
        file["d"][2:] = 5
    a = check(path)
    assert a.shape == (7, 3) and files_of(a) == ["a.h5"]


def test_a_source_that_shrank_and_one_that_is_virtual(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((6, 3), "f8")
    layout[0:2] = source(tmp_path / "a.h5", values((2, 3)), maxshape=(None, 3))
    inner = h5py.VirtualLayout((2, 3), "f8")
    inner[0:2] = source(tmp_path / "b.h5", values((2, 3), 20))
    virtual_file(tmp_path / "inner.h5", inner, name="d")
    layout[2:4] = h5py.VirtualSource("inner.h5", "d", (2, 3))
    layout[4:6] = h5py.VirtualSource("b.h5", "d", (2, 3))
    path = virtual_file(tmp_path / "v.h5", layout, fill=-3)
    assert files_of(check(path)) == ["a.h5", "b.h5"]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["d"].resize((1, 3))
    # HDF5 raises an error for all of the dataset, which is that of the region here.
    a = aa.open(path)["v"]
    assert files_of(a) == ["a.h5", "b.h5", "v.h5"] and a[4:6].tolist() == values((2, 3), 20).tolist()
    with pytest.raises(aa.FormatError, match=r"v\.h5"):
        a[0:2]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """Draw a shape, and pieces: key in it, key in the source, shape, dtype and storage of the source, whether it exists."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    boxes = [tuple((0, n) for n in shape)]
    for _ in range(draw(st.integers(0, 4))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        cut = draw(st.integers(*box[axis]))
        boxes += [(*box[:axis], part, *box[axis + 1 :]) for part in ((box[axis][0], cut), (cut, box[axis][1]))]
    pieces = []
    for box in boxes:
        sizes = [b - a for a, b in box]
        if not all(sizes) or draw(st.integers(0, 5)) == 0:
            continue
        step = draw(st.sampled_from([1, 1, 1, 2]))
        key = tuple(slice(a, b, step) for a, b in box)
        taken = [-(-n // step) for n in sizes]
        if draw(st.booleans()):
            taken = [n for n in taken if n != 1] or [1]
        before = [draw(st.integers(0, 2)) for _ in taken]
        after = [draw(st.integers(0, 2)) for _ in taken]
        own = tuple(slice(a, a + n) for a, n in zip(before, taken, strict=True))
        full = tuple(a + n + b for a, n, b in zip(before, taken, after, strict=True))
        dtype = draw(st.sampled_from(["f8", ">f4", "i2", "u1", "i8"]))
        pieces.append((key, own, full, dtype, draw(st.booleans()), draw(st.integers(0, 6)) > 0))
    return shape, pieces


@given(layouts(), st.sampled_from(["f8", "f4", "i4"]), st.data())
def test_random_layouts(tmp_path_factory: pytest.TempPathFactory, drawn: Any, dtype: str, data: st.DataObject) -> None:
    shape, pieces = drawn
    folder = tmp_path_factory.mktemp("virtual")
    layout = h5py.VirtualLayout(shape, dtype)
    for n, (key, own, full, stored, chunked, exists) in enumerate(pieces):
        content = (np.arange(np.prod(full)) % 100).reshape(full).astype(stored)
        options = {"chunks": tuple(-(-n // 2) for n in full), "compression": "gzip"} if chunked else {}
        made = source(folder / f"{n}.h5", content, **options)
        layout[key] = made[own]
        if not exists:
            (folder / f"{n}.h5").unlink()
    path = virtual_file(folder / "v.h5", layout, fill=-4)
    a = check(path)
    with h5py.File(path) as file:
        expected = file["v"][...]
    key = data.draw(keys(shape))
    np.testing.assert_array_equal(a[key], pick(expected, key))
    np.testing.assert_array_equal(a.lazy[key][...], pick(expected, key))


def test_an_index_and_pickles_keep_the_sources(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((6, 4), "f8")
    for n in range(2):
        layout[2 * n : 2 * n + 2] = source(tmp_path / f"{n}.h5", values((2, 4), n), chunks=(1, 4), compression="gzip")
    agg = aa.open(virtual_file(tmp_path / "v.h5", layout, fill=-1))
    expected = agg["v"][...]
    agg.save(tmp_path / "i.nca")
    opened = aa.open(tmp_path / "i.nca")["v"]
    for a in (opened, pickle.loads(pickle.dumps(agg["v"])), opened.transpose(), opened.flip().flip()):
        assert files_of(a) == ["0.h5", "1.h5", "v.h5"]
        found = a[...] if a.dimensions == opened.dimensions else a[...].T
        assert found.tobytes() == expected.tobytes()
    assert aa.open(tmp_path / "i.nca").check().ok
    extract(opened, tmp_path / "o.nc")
    np.testing.assert_array_equal(aa.open(tmp_path / "o.nc")["v"][...], expected)


def dated(folder: Path, n: int) -> Path:
    """Write a virtual dataset of two days out of two files, with a time coordinate."""
    layout = h5py.VirtualLayout((2, 3), "f8")
    for day in range(2):
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        made = source(folder / "parts" / f"{n}-{day}.h5", values((3,), 10 * n + day))
        layout[day] = h5py.VirtualSource(f"parts/{n}-{day}.h5", "d", made.shape)
    path = virtual_file(folder / f"v{n}.h5", layout)
    with h5py.File(path, "a") as file:
        file["time"] = np.arange(2 * n, 2 * n + 2, dtype="f8")
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["time"].make_scale("time")
        file["v"].dims[0].attach_scale(file["time"])
    return path


def test_virtual_files_join_and_an_append_equals_opening_all(tmp_path: Path) -> None:
    paths = [dated(tmp_path, n) for n in range(3)]
    whole = aa.open(paths)["v"]
    assert whole.pmshape == (6,) and files_of(whole) == [f"{n}-{day}.h5" for n in range(3) for day in range(2)]
    assert whole.shape == (6, 3)
    with h5py.File(paths[1]) as file:
        np.testing.assert_array_equal(whole.sel(time=slice("2000-01-03", "2000-01-04"))[...], file["v"][...])
    agg = aa.open(paths[:1])
    agg.save(tmp_path / "i.nca")
    for part in (agg, aa.open(tmp_path / "i.nca")):
        grown = part.append(paths[1:])["v"]
        assert files_of(grown) == files_of(whole) and grown[...].tobytes() == whole[...].tobytes()


def test_roots_hold_for_sources(tmp_path: Path) -> None:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[0:2] = source(tmp_path / "inside" / "a.h5", values((2, 3)))
    source(tmp_path / "outside" / "b.h5", values((2, 3)))
    layout[2:4] = h5py.VirtualSource(str(tmp_path / "outside" / "b.h5"), "d", (2, 3))
    path = virtual_file(tmp_path / "inside" / "v.h5", layout)
    a = aa.open(path, roots=[tmp_path / "inside"])["v"]
    assert files_of(a) == ["a.h5", "v.h5"] and a[0:2].tolist() == values((2, 3)).tolist()
    with pytest.raises(aa.ForbiddenPathError, match=r"b\.h5"):
        a[2:4]
    assert files_of(check(path, roots=[tmp_path])) == ["a.h5", "b.h5"]


def test_a_source_that_changes_is_noticed(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((2, 3), "f8")
    layout[0:2] = source(tmp_path / "a.h5", values((2, 3)))
    a = aa.open(virtual_file(tmp_path / "v.h5", layout))["v"]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["d"][...] = 7
        file["more"] = np.zeros(1000)
    with pytest.raises(aa.FormatError, match=r"a\.h5"):
        a[...]


def test_values_of_sources_are_read_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = h5py.VirtualLayout((20, 50), "f8")
    for n in range(20):
        layout[n] = source(tmp_path / f"{n}.h5", values((50,), n), chunks=(10,), compression="gzip")
    a = aa.open(virtual_file(tmp_path / "v.h5", layout))["v"]
    with h5py.File(tmp_path / "v.h5") as file:
        expected = file["v"][...]

    def forbidden(*arguments: Any) -> None:
        raise AssertionError("the library was called")

    monkeypatch.setattr(H5pyFile, "values", forbidden)
    assert a[...].tobytes() == expected.tobytes()


def test_too_many_sources_are_left_to_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggarray.formats.hdf5.virtual._MOST", 2)
    layout = h5py.VirtualLayout((3, 3), "f8")
    for n in range(3):
        layout[n] = source(tmp_path / f"{n}.h5", values((3,), n))
    assert check(virtual_file(tmp_path / "v.h5", layout)).pmshape == ()
