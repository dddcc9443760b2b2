"""Regressions of index files: lost work, unseen changes, files outside the roots."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import aggarray as aa
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick

TAS = {"units": "K", "standard_name": "air_temperature"}


def days(folder: Path, count: int) -> list[Path]:
    """Write one file per day."""
    return [Path(write(folder / f"{n}.nc", cube([n]))) for n in range(count)]


def rewritten(path: Path) -> None:
    """Overwrite a file with other values and another size."""
    changed = cube([0])
    changed["tas"] = (("time", "lat", "lon"), np.full((1, 3, 2), -1, "f4"), TAS)
    changed["extra"] = (("e",), np.zeros(500))
    write(path, changed)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_data_are_never_saved_over(tmp_path: Path, link: object) -> None:
    paths = days(tmp_path, 2)
    before = paths[0].read_bytes()
    link(paths[0], tmp_path / "link.nc")  # type: ignore[operator]
    for source, target in ((tmp_path / "link.nc", paths[0]), (paths[0], tmp_path / "link.nc"), (paths[1], paths[0])):
        with pytest.raises(aa.IndexFileError, match="exists and is not an index"):
            aa.open(source).save(target)
    assert paths[0].read_bytes() == before


def test_a_selection_keeps_arrays_joined_under_another_name(tmp_path: Path) -> None:
    paths = []
    for number, name in enumerate(["tas", "tas", "t2m", "tas"]):
        variables = cube([number])
        variables[name] = variables.pop("tas")
        paths.append(write(tmp_path / f"{number}.nc", variables))
    aa.open(paths[:3]).save(tmp_path / "i.nca")
    for chosen in (aa.open(tmp_path / "i.nca", variables=["tas"]), aa.open(tmp_path / "i.nca").select("tas")):
        assert chosen["tas"].shape[0] == 3
        grown = chosen.append(paths[3])
        assert grown["tas"].shape[0] == 4
        grown.save(tmp_path / "j.nca")
        again = aa.open(tmp_path / "j.nca")
        np.testing.assert_array_equal(again["tas"][:], aa.open(paths)["tas"][:])
        assert again.append(paths[3])["tas"].shape[0] == 4


def test_changes_are_found_after_other_rules(tmp_path: Path) -> None:
    paths = days(tmp_path, 3)
    index = tmp_path / "i.nca"
    aa.open(paths[:2]).save(index)
    rewritten(paths[0])
    for opened in (aa.open(index).append(paths[2]), aa.open(index, rules=aa.Rules(tolerance=1e-4)), aa.open([index, paths[2]])):
        with pytest.raises(aa.IndexFileError, match=r"changed since it was scanned.*0\.nc"):
            opened["tas"][:]


def test_changes_of_files_named_by_hand(tmp_path: Path) -> None:
    path = days(tmp_path, 1)[0]
    piece = aa.SubArray.from_file(path, "tas")
    array = aa.MasterArray.from_subarrays([([(0, 1), (0, 3), (0, 2)], piece)], dimensions=("time", "lat", "lon"), name="tas")
    aa.Aggregation((array,)).save(tmp_path / "i.nca")
    assert aa.open(tmp_path / "i.nca").check().ok
    rewritten(path)
    assert [p.kind for p in aa.open(tmp_path / "i.nca").check().problems] == ["changed"]
    with pytest.raises(aa.IndexFileError, match="changed since"):
        aa.open(tmp_path / "i.nca")["tas"][:]


def test_a_save_over_a_newer_index_is_an_error(tmp_path: Path) -> None:
    paths = days(tmp_path, 4)
    index = tmp_path / "i.nca"
    aa.open(paths[:2]).save(index)
    mine = (aa.open(index).select("tas").append(paths[3]), aa.open([index, paths[3]]), aa.open(index, variables=["tas"]))
    aa.open(index).append(paths[2]).save(index)
    for aggregation in mine:
        with pytest.raises(aa.IndexFileError, match=r"modified by another process since it was opened"):
            aggregation.save(index)
    assert aa.open(index)["tas"].shape[0] == 3


def test_cfa_uses_the_dimension_names_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    other = cube([0, 1])
    other["pr"] = (*other.pop("tas")[:2], {"units": "mm", "standard_name": "precipitation_amount"})
    write(tmp_path / "b.nc", other)
    agg = aa.open(tmp_path)
    agg.save(tmp_path / "i.nca", convention="CFA-0.4")
    with h5py.File(tmp_path / "i.nca", "a") as file:
        del file["aggarray"]
    for name in ("tas", "pr"):
        np.testing.assert_array_equal(aa.open(tmp_path / "i.nca")[name][:], agg[name][:])


def test_the_command_append_keeps_the_convention(tmp_path: Path) -> None:
    from aggarray.cli import main

    paths = days(tmp_path, 2)
    index = tmp_path / "i.nca"
    for arguments in (
        ["aggregate", str(paths[0]), "-o", str(index), "--convention", "CFA-0.4", "--absolute"],
        ["append", str(index), str(paths[1])],
    ):
        with pytest.raises(SystemExit) as done:
            main(arguments)
        assert done.value.code == 0
    with h5py.File(index) as file:
        assert "CFA-0.4" in str(file.attrs["Conventions"]) and f'"{paths[1]}"' in str(file["tas"].attrs["cfa_array"])


def test_changed_files_keep_their_position(tmp_path: Path) -> None:
    rules = aa.Rules(order={"n": "given"})
    paths = [write(tmp_path / f"{n}.nc", {"v": (("n",), np.full(1, float(n)), {"units": "K"})}) for n in range(3)]
    aa.open(paths[:2], rules=rules).save(tmp_path / "i.nca")
    write(tmp_path / "0.nc", {"v": (("n",), np.full(1, 7.0), {"units": "K"}), "w": (("m",), np.zeros(9))})
    grown = aa.open(tmp_path / "i.nca").append(paths)
    np.testing.assert_array_equal(grown["v"][:], aa.open(paths, rules=rules)["v"][:])


def test_files_of_a_foreign_index_are_not_appended_again(tmp_path: Path) -> None:
    paths = days(tmp_path, 3)
    aa.open(paths[:2]).save(tmp_path / "i.nca")
    with h5py.File(tmp_path / "i.nca", "a") as file:
        del file["aggarray"]
    grown = aa.open(tmp_path / "i.nca").append(paths[1:])
    np.testing.assert_array_equal(grown["tas"][:], aa.open(paths)["tas"][:])


def test_roots_apply_to_external_storage(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    np.arange(4.0).tofile(outside / "raw.bin")
    with h5py.File(outside / "s.h5", "w") as file:
        file["v"] = np.arange(4.0)
    with h5py.File(inside / "a.h5", "w") as file:
        file.create_dataset("external", (4,), "f8", external=[(str(outside / "raw.bin"), 0, 32)])
        layout = h5py.VirtualLayout((4,), "f8")
        layout[:] = h5py.VirtualSource(str(outside / "s.h5"), "v", shape=(4,))
        file.create_virtual_dataset("virtual", layout)
        file["plain"] = np.arange(4.0)
    bound, free = aa.open(inside / "a.h5", roots=[inside]), aa.open(inside / "a.h5")
    for name in ("external", "virtual"):
        np.testing.assert_array_equal(free[name][:], np.arange(4.0))
        with pytest.raises(aa.IndexFileError, match="outside the folders that may be read"):
            bound[name][:]
    np.testing.assert_array_equal(bound["plain"][:], np.arange(4.0))


def test_roots_apply_to_links_in_a_store(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.open_group(str(tmp_path / "in" / "z.zarr"), mode="w", zarr_format=2)
    store.create_array("t", shape=(4,), chunks=(2,), dtype="f8", fill_value=None)[:] = np.arange(4.0)
    chunk = tmp_path / "in" / "z.zarr" / "t" / "0"
    os.rename(chunk, tmp_path / "secret")
    os.symlink(tmp_path / "secret", chunk)
    with pytest.raises(aa.IndexFileError, match="outside the folders that may be read"):
        aa.open(tmp_path / "in" / "z.zarr", roots=[tmp_path / "in"])["t"][:]


def test_an_index_may_lie_outside_the_roots(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    paths = days(tmp_path / "data", 2)
    aa.open(paths).save(tmp_path / "own.nca")
    aa.open(paths).save(tmp_path / "foreign.nca")
    with h5py.File(tmp_path / "foreign.nca", "a") as file:
        del file["aggarray"]
    for source in (tmp_path / "own.nca", tmp_path / "foreign.nca", [tmp_path / "own.nca", paths[0]]):
        assert aa.open(source, roots=[tmp_path / "data"])["tas"][:].shape[0] == 2


def test_a_group_with_its_own_dimension(tmp_path: Path) -> None:
    ranges = {"g/v": (("x",), np.arange(3.0)), "v": (("x",), np.arange(4.0)), "x": (("x",), np.arange(4.0))}
    path = write(tmp_path / "n.nc", ranges)
    array = aa.open(path, variables=["g/v"])["g/v"]
    assert array.shape == (3,) and "x" not in array.coords
    aa.open(path).save(tmp_path / "i.nca")
    assert aa.open(tmp_path / "i.nca")["g/v"].shape == (3,)


def test_a_compressed_document_of_excessive_size(tmp_path: Path) -> None:
    aa.open(days(tmp_path, 1)).save(tmp_path / "i.nca")
    with h5py.File(tmp_path / "i.nca", "a") as file:
        del file["aggarray/document"]
        file["aggarray"].create_dataset("document", shape=(3 << 30,), dtype="u1", chunks=(1 << 20,), compression="gzip")
    with pytest.raises(aa.IndexFileError, match="document of 3221225472 bytes"):
        aa.open(tmp_path / "i.nca")
