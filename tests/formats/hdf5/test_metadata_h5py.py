"""Scans without the library equal those of netCDF4, or are refused, for files of h5py and related packages."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import aggarray as aa
from tests.support.scans import agrees, check, check_against_h5py, without_library

VERSIONS = ("earliest", ("earliest", "v108"), ("v108", "v108"), ("v110", "v110"), ("v112", "v112"), "latest")


def scales(file: h5py.File, **storage: Any) -> None:
    """Write scales x and t, and variables along them."""
    file["x"] = np.arange(3.0)
    file.create_dataset("t", data=np.arange(7), maxshape=(None,), chunks=(2,))
    file.create_dataset("v", data=np.arange(21.0).reshape(7, 3), maxshape=(None, 3), chunks=(2, 2), **storage)
    file["fixed"] = np.arange(9, dtype=">i2").reshape(3, 3)
    file["scalar"] = 5
    for name in ("x", "t"):
        file[name].make_scale(name)
    for name, axes in (("v", "tx"), ("fixed", "xx")):
        for dimension, axis in zip(file[name].dims, axes, strict=True):
            dimension.attach_scale(file[axis])
    file["x"].attrs.update({"units": "m", "many": [1.0, 2.0], "texts": ["a", "b"], "bytes": np.bytes_("b"), "coordinates": "v"})
    file.attrs.update({f"attribute {n}": f"text {n}" for n in range(5)})
    file["v"].attrs["bounds"] = "fixed"


@pytest.mark.parametrize("libver", VERSIONS, ids=str)
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("userblock", [0, 512, 2048])
def test_versions(tmp_path: Path, libver: Any, order: bool, userblock: int) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=libver, track_order=order, userblock_size=userblock) as file:
        scales(file, compression="gzip", shuffle=True)
        scales(file.create_group("z/inner", track_order=not order))
        scales(file.create_group("a"), fletcher32=True)
        file["lonely"] = 1
    if userblock:
        with open(path, "r+b") as raw:
            raw.write(b"a user block")
    assert len(check(path).variables) == 16


@pytest.mark.parametrize("libver", VERSIONS, ids=str)
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("count", [7, 9, 50])
def test_many_attributes_and_links(tmp_path: Path, libver: Any, order: bool, count: int) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=libver, track_order=order) as file:
        scales(file)
        made = file.create_dataset("w", data=np.arange(3), track_order=order)
        made.dims[0].attach_scale(file["x"])
        for number in range(count):
            name = f"{(number * 7919) % 1000}"
            made.attrs[name] = file.attrs[name] = f"value {number}"
            file[f"v{name}"] = number
        made.attrs["long"] = "x" * 70_000 if libver != "earliest" else "x" * 7000
    # Without creation order, attributes in a heap are sorted by name here, and by checksum in netCDF4.
    assert agrees(path, ordered=order or libver in ("earliest", ("earliest", "v108")))


def single(file: h5py.File) -> None:
    file.create_dataset("v", data=np.arange(12.0).reshape(3, 4), chunks=(3, 4))
    file.create_dataset("w", data=np.arange(12.0).reshape(3, 4), chunks=(3, 4), compression="gzip")
    file.create_dataset("late", (3, 4), "i4", chunks=(3, 4), fillvalue=3)


def implicit(file: h5py.File) -> None:
    space = h5py.h5s.create_simple((7, 5))
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((2, 3))
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    dataset = h5py.h5d.create(file.id, b"v", h5py.h5t.IEEE_F64LE, space, made)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(35.0).reshape(7, 5))


def fixed(file: h5py.File) -> None:
    values = np.arange(35).reshape(7, 5)
    file.create_dataset("v", data=values, chunks=(2, 3))
    file.create_dataset("w", data=values, chunks=(2, 3), compression="gzip", fletcher32=True)
    file.create_dataset("larger", data=values, chunks=(2, 3), maxshape=(20, 30))
    file.create_dataset("holes", (7, 5), "f4", chunks=(2, 3), fillvalue=-1)[2:4, 3:] = 7
    file.create_dataset("pages", (3000, 2), "i4", chunks=(1, 1), fillvalue=4)[1500:1600] = 5


def extensible(file: h5py.File) -> None:
    values = np.arange(35).reshape(7, 5)
    file.create_dataset("v", data=values, chunks=(2, 3), maxshape=(None, 5))
    file.create_dataset("w", data=values, chunks=(1, 1), maxshape=(None, 9), compression="gzip")
    file.create_dataset("long", data=np.arange(1500), chunks=(1,), maxshape=(None,))
    file.create_dataset("holes", (900,), "f4", chunks=(2,), maxshape=(None,), fillvalue=-1)[700:711] = 7
    file.create_dataset("empty", (0, 4), "f4", chunks=(2, 4), maxshape=(None, 4))


def tree(file: h5py.File) -> None:
    values = np.arange(350).reshape(70, 5)
    file.create_dataset("v", data=values, chunks=(1, 3), maxshape=(None, None))
    file.create_dataset("w", data=values, chunks=(2, 1), maxshape=(None, None), compression="lzf")
    file.create_dataset("holes", (90, 90), "f4", chunks=(2, 9), maxshape=(None, None), fillvalue=-1)[70:75, 30:60] = 7


@pytest.mark.parametrize("write", [single, implicit, fixed, extensible, tree])
@pytest.mark.parametrize("libver", ["earliest", ("v108", "v108"), "latest"], ids=str)
def test_every_type_of_chunk_index(tmp_path: Path, write: Callable[[h5py.File], None], libver: Any) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=libver) as file:
        write(file)
        names = list(file)
        for name in names:
            scale = {}
            for axis, (n, most) in enumerate(zip(file[name].shape, file[name].maxshape, strict=True)):
                made = file.create_dataset(f"{name}_{axis}", (n,), "i1", maxshape=(most,), chunks=(max(min(n, most or n), 1),))
                made.make_scale(f"{name}_{axis}")
                scale[axis] = made
            for axis, made in scale.items():
                file[name].dims[axis].attach_scale(made)
        file["note"] = 1
        file["note"].attrs["coordinates"] = np.bytes_(" ".join(names))
    # With two unlimited dimensions netCDF-C returns uninitialised memory.
    result = {v.name: v.values for v in (check_against_h5py if write is tree else check)(path).variables}
    with h5py.File(path) as file:
        for name in names:
            np.testing.assert_array_equal(result[name], file[name][...])


def test_values_of_a_tree_of_version_2(tmp_path: Path) -> None:
    from aggarray.formats.hdf5.metadata.headers import header_at
    from aggarray.formats.hdf5.metadata.lookup import H5File
    from aggarray.formats.hdf5.metadata.values import values_of

    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        tree(file)
    with contextlib.closing(H5File(str(path))) as own, h5py.File(path) as file:
        for link in own.links_at(own.address, own.root):
            expected = file[link.name.decode()][...]
            result = values_of(own.data, header_at(own.data, link.address), expected.shape)
            np.testing.assert_array_equal(result, expected)


def test_compact_storage(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
        file["x"].make_scale("x")
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_layout(h5py.h5d.COMPACT)
        dataset = h5py.h5d.create(file.id, b"v", h5py.h5t.STD_I32BE, h5py.h5s.create_simple((3,)), made)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 3], "i4"))
        file["v"].dims[0].attach_scale(file["x"])
        file["x"].attrs["bounds"] = np.bytes_("v")
    assert check(path).variables[0].values is not None


def test_h5netcdf_and_xarray(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    dataset = xarray.Dataset(
        {"v": (("time", "x"), np.ones((4, 3), "f4"), {"units": "K"}), "text": ("x", ["a", "bc", "größe"])},
        {"time": np.arange(4), "x": [1.0, 2.0, 3.0], "label": ("x", ["a", "b", "c"]), "height": 2.0},
        {"title": "é", "list": ["a", "b"], "number": 1.5},
    )
    for engine in ("h5netcdf", "netcdf4"):
        if engine == "h5netcdf":
            pytest.importorskip("h5netcdf")
        path = tmp_path / f"{engine}.nc"
        dataset.to_netcdf(path, engine=engine, unlimited_dims=["time"])
        check(path)


def test_attributes_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", track_order=True) as file:
        scales(file)
        given: dict[str, Any] = {
            **{"str": "hé", "bytes": np.bytes_(b"ab\0c"), "one text": np.array([b"ab"], "S4"), "_FillValue": np.bytes_(b"x")},
            **{"texts": np.array([b"ab", b"cdef"], "S4"), "no texts": np.empty(0, "S4")},
            **{"nothing": h5py.Empty("f4"), "no text": h5py.Empty("S4"), "no str": h5py.Empty(h5py.string_dtype())},
            **{"no strs": np.empty(0, h5py.string_dtype()), "empty": ""},
            **{"one": np.array([1.5]), "scalar": np.float32(2), "many": np.arange(3, dtype=">i2"), "zero": np.empty(0, "f4")},
            **{"strs": ["a", "bé"], "one str": np.array(["a"], object)},
            **{f"{order}{code}": np.arange(2).astype(order + code) for order in "<>" for code in ("i8", "u4", "f4")},
        }
        made = file.create_dataset("w", data=[1, 2, 3], track_order=True)
        made.dims[0].attach_scale(file["x"])
        for name, value in given.items():
            made.attrs[name] = file.attrs[name] = value
        padded = h5py.h5t.C_S1.copy()
        padded.set_size(5)
        padded.set_strpad(h5py.h5t.STR_SPACEPAD)
        for space in (h5py.h5s.create(h5py.h5s.SCALAR), h5py.h5s.create_simple((1,))):
            attribute = h5py.h5a.create(made.id, f"padded {space.get_simple_extent_ndims()}".encode(), padded, space)
            attribute.write(np.full(space.shape, b"ab   ", "S5"))
    result = check(path)
    assert set(given) <= set(result.attrs)
    assert result.attrs["texts"] == ["ab", "cdef"]
    # Lists are not shared between results.
    result.attrs["texts"].append("mine")
    assert check(path).attrs["texts"] == ["ab", "cdef"]


def test_dimension_numbers_take_precedence_over_references(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        for number, name in enumerate("xy"):
            file[name] = np.arange(3)
            file[name].make_scale(name)
            file[name].attrs["_Netcdf4Dimid"] = np.int32(1 - number)
        file["v"] = np.ones((3, 3))
        for dimension, name in zip(file["v"].dims, "xy", strict=True):
            dimension.attach_scale(file[name])
        file["v"].attrs["_Netcdf4Coordinates"] = np.array([0, 1], "i4")
    assert check(path).variables[0].dimensions == ("y", "x")


def soft(file: h5py.File) -> None:
    file["link"] = h5py.SoftLink("/x")


def hard(file: h5py.File) -> None:
    file["link"] = file["x"]


def cycle(file: h5py.File) -> None:
    file["g/circle"] = file["/"]


def outside(file: h5py.File) -> None:
    file["link"] = h5py.ExternalLink("other.nc", "/x")


def committed(file: h5py.File) -> None:
    file["kind"] = np.dtype("f4")


def shared(file: h5py.File) -> None:
    file["kind"] = np.dtype("f4")
    file.create_dataset("shared", (3,), file["kind"])


def external(file: h5py.File) -> None:
    file.create_dataset("w", (3,), "f4", external=[("values", 0, 12)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(".", "x", (3,))
    file.create_virtual_dataset("w", layout)


def types(file: h5py.File) -> None:
    file["flag"] = np.array([True, False, True])


def half(file: h5py.File) -> None:
    file["half"] = np.zeros(3, "f2")


def text(file: h5py.File) -> None:
    file["text"] = np.zeros(3, "S8")


def reference(file: h5py.File) -> None:
    file.create_dataset("reference", (), h5py.ref_dtype)


def null(file: h5py.File) -> None:
    file["null"] = h5py.Empty("f4")


def odd_attribute(file: h5py.File) -> None:
    file["x"].attrs["flag"] = True


def wide_attribute(file: h5py.File) -> None:
    file["x"].attrs["wide"] = np.ones((2, 2))


def image(file: h5py.File) -> None:
    file["v"].attrs["CLASS"] = np.bytes_("IMAGE")


def reserved(file: h5py.File) -> None:
    file.attrs["_IsNetcdf4"] = 1


def nameless(file: h5py.File) -> None:
    file["nameless"] = np.arange(4)


ODD = [soft, hard, cycle, outside, committed, shared, external, virtual, types, half, text, reference, null, odd_attribute]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("write", [*ODD, wide_attribute, image, reserved, nameless])
def test_rare_objects_equal_the_scan_by_h5py(tmp_path: Path, write: Callable[[h5py.File], None], libver: str) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=libver) as file:
        scales(file)
        write(file)
    check_against_h5py(path)


@pytest.mark.parametrize("strategy", ["page", "fsm", "aggregate", "none"])
@pytest.mark.parametrize("persist", [False, True])
def test_strategies_of_free_space(tmp_path: Path, strategy: str, persist: bool) -> None:
    """Files for object stores are paged, which an extension of the superblock states."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver="v110", fs_strategy=strategy, fs_persist=persist) as file:
        scales(file, compression="gzip")
        del file["fixed"]
        file["later"] = np.arange(3.0)
        file["later"].dims[0].attach_scale(file["x"])
    check(path)


def test_files_without_scales_are_not_netcdf(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scalar"] = 1
    result = check_against_h5py(tmp_path / "a.h5")
    assert (result.format, result.sizes) == ("HDF5", None)


def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver="latest") as file:
        scales(file)
        file.flush()
        assert without_library(path) is None
    assert without_library(path) is not None


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        scales(file)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert without_library(path) is None
    assert without_library(tmp_path / "none.nc") is None


def test_a_class_attribute_that_hdf5_ignores(tmp_path: Path) -> None:
    # HDF5 requires NUL-terminated text, and h5py pads the value.
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        scales(file)
        file["lonely"] = np.arange(3)
        file["lonely"].attrs["CLASS"] = np.bytes_("DIMENSION_SCALE")
    check_against_h5py(path)


def test_addresses_of_four_bytes(tmp_path: Path) -> None:
    """The library reads such a file: its superblock is shorter, and the checksum has another offset."""
    made = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    made.set_sizes(4, 4)
    path = tmp_path / "a.h5"
    with h5py.File(h5py.h5f.create(bytes(path), fcpl=made)) as file:
        rows = file.create_dataset("r", (4,), h5py.vlen_dtype("i4"))
        for i in range(4):
            rows[i] = np.arange(i)
    array = aa.open(path)["r"]
    assert [row.tolist() for row in array[:]] == [list(range(i)) for i in range(4)]
