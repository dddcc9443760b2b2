"""`append`: equal to opening everything again, reading only the new files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray import formats
from tests.support.examples import examples
from tests.support.index_files import files_below, same, save_and_open
from tests.support.netcdf import LAT, NOLEAP, TAS, cube, field, write
from tests.support.paths import ROOT


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return a list that receives the names of the scanned files, in order."""
    result: list[str] = []
    for one in formats.formats():
        kind = type(one)

        def scan(self: Any, path: str, original: Any = kind.scan) -> Any:
            result.append(os.path.basename(path))
            return original(self, path)

        monkeypatch.setattr(kind, "scan", scan)
    yield result


def appended(index: Path, new: Any) -> aa.Aggregation:
    """Append to an index, save it, and return it opened again."""
    aa.open(index).append(new).save(index)
    return aa.open(index)


def check(folder: Path, old: list[str], new: list[str], **how: Any) -> aa.Aggregation:
    """Compare an index with appended files with all files opened at once, before and after a save."""
    index = folder / "index.idx"
    expected = aa.open([folder / n for n in sorted({*old, *new})], **how)
    before = save_and_open(aa.open([folder / n for n in old], **how), index)
    grown = before.append([folder / n for n in new])
    same(grown, expected)
    grown.save(index)
    again = aa.open(index)
    same(again, expected)
    return again


FILES = [f"{n}.nc" for n in range(5)]


@pytest.mark.parametrize("new", [[0], [4], [2], [0, 4], [1, 3], [0, 1, 2, 3]], ids=str)
def test_files_before_between_and_after(tmp_path: Path, new: list[int], opened: list[str]) -> None:
    for number, name in enumerate(FILES):
        write(tmp_path / name, cube([number * 2, number * 2 + 1]))
    names = [FILES[n] for n in new]
    save_and_open(aa.open([tmp_path / n for n in FILES if n not in names]), tmp_path / "index.idx")
    opened.clear()
    grown = appended(tmp_path / "index.idx", [tmp_path / n for n in names])
    assert sorted(n for n in opened if n != "index.idx") == names
    same(grown, aa.open(tmp_path / "*.nc"))


def test_known_files_of_a_folder_are_not_scanned_again(tmp_path: Path, opened: list[str]) -> None:
    """The path may be a folder, a glob or a list."""
    for number in range(3):
        write(tmp_path / "data" / FILES[number], cube([number]))
    agg = save_and_open(aa.open(tmp_path / "data"), tmp_path / "index.idx")
    write(tmp_path / "data" / FILES[3], cube([3]))
    opened.clear()
    grown = agg.append(tmp_path / "data")
    assert opened == [FILES[3]]
    same(grown, aa.open(tmp_path / "data"))
    opened.clear()
    same(grown.append(f"{tmp_path}/data/*.nc"), grown)
    assert opened == []


def test_lat_and_time_at_once(tmp_path: Path) -> None:
    """Tiles along two dimensions; holes appear and are filled."""
    for t in range(3):
        for y in range(3):
            write(tmp_path / f"{t}{y}.nc", cube([t], lats=[y * 10.0, y * 10.0 + 5]))
    names = [f"{t}{y}.nc" for t in range(3) for y in range(3)]
    for new in (["11.nc"], ["00.nc", "22.nc"], ["00.nc", "01.nc", "02.nc"], ["20.nc", "21.nc", "22.nc"], ["02.nc"]):
        check(tmp_path, [n for n in names if n not in new], new)


@pytest.mark.parametrize("overlap", ["refuse", "first", "last"])
@pytest.mark.parametrize("steps", [[1, 2, 3], [3, 4], [2], [0, 1, 2, 3, 4, 5, 6], [2.5]], ids=str)
def test_overlaps(tmp_path: Path, overlap: str, steps: list[float]) -> None:
    write(tmp_path / "a.nc", cube([0, 1, 2]))
    write(tmp_path / "b.nc", cube([3, 4, 5]))
    other = field(steps, (10, 20, 30), (0, 5)) + np.float32(1000)
    write(tmp_path / "c.nc", cube(steps, tas=(("time", "lat", "lon"), other, TAS)))
    rules = aa.Rules(overlap=overlap)
    check(tmp_path, ["a.nc", "b.nc"], ["c.nc"], rules=rules)
    check(tmp_path, ["b.nc", "c.nc"], ["a.nc"], rules=rules)


def test_duplicates(tmp_path: Path) -> None:
    for name, steps in (("a", [0, 1]), ("b", [2, 3]), ("c", [0, 1]), ("d", [0, 1]), ("e", [2, 3])):
        write(tmp_path / f"{name}.nc", cube(steps))
    names = [f"{c}.nc" for c in "abcde"]
    for new in (["c.nc"], ["a.nc"], ["d.nc", "e.nc"], ["a.nc", "b.nc"], ["b.nc", "c.nc", "d.nc"], ["a.nc", "c.nc"]):
        check(tmp_path, [n for n in names if n not in new], new)


def test_duplicates_of_some_variables(tmp_path: Path) -> None:
    """A file whose `tas` is a duplicate still serves its own `pr`."""
    pr = (("time",), [1.0], {"units": "mm"})
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([0], pr=pr))
    write(tmp_path / "c.nc", cube([1], pr=pr))
    write(tmp_path / "d.nc", cube([1]))
    names = [f"{c}.nc" for c in "abcd"]
    for new in (["a.nc"], ["b.nc"], ["c.nc"], ["d.nc"], ["b.nc", "d.nc"], ["a.nc", "c.nc"]):
        check(tmp_path, [n for n in names if n not in new], new)


def test_a_duplicated_file_changes(tmp_path: Path) -> None:
    """After a rewrite of the first file, the second is not a duplicate."""
    write(tmp_path / "a.nc", cube([0, 1]))
    write(tmp_path / "b.nc", cube([0, 1]))
    write(tmp_path / "c.nc", cube([2]))
    agg = save_and_open(aa.open(tmp_path / "*.nc"), tmp_path / "index.idx")
    assert len(agg.duplicates) == 1
    write(tmp_path / "a.nc", cube([3, 4]))
    same(agg.append(tmp_path / "a.nc"), aa.open(tmp_path / "*.nc"))
    same(appended(tmp_path / "index.idx", tmp_path / "*.nc"), aa.open(tmp_path / "*.nc"))


def test_a_duplicate_changes(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    write(tmp_path / "b.nc", cube([0, 1]))
    agg = save_and_open(aa.open(tmp_path / "*.nc"), tmp_path / "index.idx")
    write(tmp_path / "b.nc", cube([2, 3]))
    same(agg.append(tmp_path / "b.nc"), aa.open(tmp_path / "*.nc"))


@pytest.mark.heavy
def test_new_variables_datasets_and_grids(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]), {"source_id": "A"})
    write(tmp_path / "b.nc", cube([0], pr=(("time", "lat"), np.ones((1, 3)), {"units": "mm"})), {"source_id": "A"})
    write(tmp_path / "c.nc", cube([1]), {"source_id": "C"})
    write(tmp_path / "d.nc", cube([1], lats=(11.0, 21.0)), {"source_id": "A"})
    write(tmp_path / "e.nc", cube([1], time=(("time",), [1.0], NOLEAP)), {"source_id": "A"})
    write(tmp_path / "f.nc", cube([1], tas=(("time", "lat", "lon"), field([1], (1, 2, 3), (0, 5)), {**TAS, "units": "m"})))
    write(
        tmp_path / "g.nc", cube([2], lat=(("lat",), [10.0, 20.0, 30.0], {**LAT, "units": "degree_north"})), {"source_id": "A"}
    )
    names = [f"{c}.nc" for c in "abcdefg"]
    for name in names:
        check(tmp_path, [n for n in names if n != name], [name])
    for k in range(1, len(names)):
        check(tmp_path, names[:k], names[k:])
    again = check(tmp_path, names, ["a.nc"], variables=["pr"])
    assert again.names == ("pr",)


def test_append_keeps_the_selection_of_variables(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0], pr=(("time",), [1.0], {"units": "mm"})))
    write(tmp_path / "b.nc", cube([1], pr=(("time",), [2.0], {"units": "mm"})))
    again = check(tmp_path, ["a.nc"], ["b.nc"], variables=["pr"])
    assert again.names == ("pr",)
    some = save_and_open(aa.open(tmp_path / "a.nc").select("tas"), tmp_path / "some.idx").append(tmp_path / "b.nc")
    assert some.names == ("tas",) and some["tas"].shape[0] == 2


def test_a_file_that_grew_or_was_rewritten(tmp_path: Path, opened: list[str]) -> None:
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    agg = save_and_open(aa.open(tmp_path / "*.nc"), tmp_path / "index.idx")
    write(tmp_path / FILES[1], cube([1, 1.25, 1.5]))
    opened.clear()
    grown = agg.append(tmp_path / "*.nc")
    assert opened == [FILES[1]]
    expected = aa.open(tmp_path / "*.nc")
    same(grown, expected)
    assert grown["tas"].shape[0] == 5
    same(appended(tmp_path / "index.idx", tmp_path / FILES[1]), expected)


def test_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    (tmp_path / "bad.nc").write_bytes(b"CDF\x01 and no more")
    (tmp_path / "worse.nc").write_bytes(b"")
    check(tmp_path, ["a.nc"], ["b.nc", "bad.nc", "worse.nc"])
    check(tmp_path, ["a.nc", "bad.nc"], ["b.nc", "worse.nc"])
    check(tmp_path, ["a.nc", "bad.nc", "worse.nc"], ["b.nc"])
    agg = save_and_open(aa.open([tmp_path / "a.nc", tmp_path / "bad.nc"]), tmp_path / "index.idx")
    # Unreadable files are listed as by `open`, those of the index included.
    same(agg.append(tmp_path / "worse.nc"), aa.open([tmp_path / n for n in ("a.nc", "bad.nc", "worse.nc")]))
    same(agg.append(tmp_path / "bad.nc"), agg)
    with pytest.raises(aa.MissingFileError, match=r"nothing\.nc"):
        agg.append(tmp_path / "nothing.nc")
    with pytest.raises(aa.MissingFileError, match="no file"):
        agg.append(f"{tmp_path}/nothing*.nc")
    with pytest.raises(aa.AggregationError):
        agg.append(5)
    # The file is repaired.
    write(tmp_path / "bad.nc", cube([5]))
    same(agg.append(tmp_path / "*.nc") if not (tmp_path / "worse.nc").unlink() else agg, aa.open(tmp_path / "*.nc"))


def test_a_missing_file_stays_in_the_index(tmp_path: Path) -> None:
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    expected = aa.open(tmp_path / "*.nc")
    agg = save_and_open(aa.open([tmp_path / FILES[0], tmp_path / FILES[1]]), tmp_path / "index.idx")
    os.rename(tmp_path / FILES[0], tmp_path / "away")
    grown = agg.append(tmp_path / FILES[2])
    same(grown, expected, values=False)
    grown.save(tmp_path / "index.idx")
    os.rename(tmp_path / "away", tmp_path / FILES[0])
    same(aa.open(tmp_path / "index.idx"), expected)


def test_a_missing_file_of_the_index_may_be_passed(tmp_path: Path) -> None:
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    agg = save_and_open(aa.open([tmp_path / FILES[0], tmp_path / FILES[1]]), tmp_path / "index.idx")
    (tmp_path / FILES[0]).unlink()
    with pytest.raises(aa.MissingFileError, match=r"0\.nc"):
        agg.append(tmp_path / FILES[0])
    grown = agg.append([tmp_path / FILES[0], tmp_path / FILES[2]])
    same(grown, aa.open([tmp_path / n for n in FILES[:3]]))
    assert [os.path.basename(s.file) for s in grown.skipped] == ["0.nc"]


def test_rules_apply_to_appended_files(tmp_path: Path) -> None:
    rules = aa.Rules(units={"tas": "degC"}, directions={"lat": False}, new_dimension=r"member=r(\d)", overlap="last")
    names = [f"r{m}_{t}.nc" for m in range(2) for t in range(3)]
    for name in names:
        write(tmp_path / name, cube([int(name[3])]))
    for new in (["r1_2.nc"], ["r1_0.nc", "r1_1.nc", "r1_2.nc"], ["r0_0.nc"]):
        check(tmp_path, [n for n in names if n not in new], new, rules=rules)


def test_append_to_an_unsaved_aggregation(tmp_path: Path) -> None:
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    agg = aa.open(tmp_path / FILES[1])
    same(agg.append(tmp_path / FILES[0]).append(tmp_path / FILES[2]), aa.open(tmp_path / "*.nc"))
    assert agg["tas"].shape[0] == 1


def test_append_an_index(tmp_path: Path) -> None:
    for t in range(4):
        write(tmp_path / FILES[t], cube([t]))
    one = save_and_open(aa.open([tmp_path / FILES[0], tmp_path / FILES[1]]), tmp_path / "one.idx")
    aa.open([tmp_path / FILES[2], tmp_path / FILES[3]]).save(tmp_path / "two.idx")
    both = one.append(tmp_path / "two.idx")
    same(both, aa.open(tmp_path / "*.nc"))
    same(save_and_open(both, tmp_path / "both.idx"), aa.open(tmp_path / "*.nc"))
    # A file of both indexes counts once.
    same(both.append(tmp_path / "two.idx"), both)
    same(both.append(tmp_path / "both.idx"), both)
    same(both.append(tmp_path / "one.idx").append(tmp_path / FILES[1]), both)


def test_arrays_of_from_subarrays_are_kept(tmp_path: Path) -> None:
    """Arrays that no scan returned survive an append, and other rules."""
    write(tmp_path / "a.nc", cube([0]))
    piece = aa.SubArray.from_array([1.0, 2.0], dimensions=("x",))
    mine = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",), name="mine")
    index = tmp_path / "index.idx"
    for agg in (aa.Aggregation((mine,)), save_and_open(aa.Aggregation((mine,)), index)):
        grown = agg.append(tmp_path / "a.nc")
        assert sorted(grown.names) == ["mine", "tas"]
        assert grown["mine"][...].tolist() == [1.0, 2.0]
    assert aa.open(index, rules=aa.Rules(overlap="last")).names == ("mine",)
    appended(index, tmp_path / "a.nc")
    assert sorted(aa.open(index, rules=aa.Rules(overlap="first")).names) == ["mine", "tas"]
    both = aa.open([index, tmp_path / "a.nc"])
    assert sorted(both.names) == ["mine", "tas"]


@pytest.mark.parametrize("saves", [1, 3])
def test_repeated_appends_to_one_object(tmp_path: Path, saves: int) -> None:
    """The object is saved after each append, and never opened again."""
    agg = None
    for t in range(6):
        write(tmp_path / FILES[0].replace("0", str(t)), cube([t], lat=(("lat",), [1.0, 2.0, 3.0], LAT)))
        source = tmp_path / f"{t}.nc"
        agg = aa.open(source) if agg is None else agg.append(source)
        for _ in range(saves):
            agg.save(tmp_path / "index.idx")
    assert agg is not None
    same(agg, aa.open(tmp_path / "*.nc"))
    same(aa.open(tmp_path / "index.idx"), agg)


def test_lazy_coordinates_survive_a_save_over_their_index(tmp_path: Path) -> None:
    lats = np.arange(20_000) / 1000.0
    for t in range(2):
        write(tmp_path / FILES[t], cube([t], lats=lats, lons=(0.0,)))
    first = save_and_open(aa.open(tmp_path / FILES[0]), tmp_path / "index.idx")
    unread = aa.open(tmp_path / "index.idx")
    grown = first.append(tmp_path / FILES[1])
    grown.save(tmp_path / "index.idx")
    with pytest.raises(aa.IndexFileError, match=r"modified by another process since it was opened.*index\.idx.*open it again"):
        unread["tas"].coords["lat"][...]
    for agg in (grown, aa.open(tmp_path / "index.idx")):
        np.testing.assert_array_equal(agg["tas"].coords["lat"][...], lats)
        assert agg["tas"].sel(lat=0.5).shape == agg["tas"][:, 0].shape


@given(st.data())
@settings(max_examples=examples(15))
def test_random_splits(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("split")
    count = data.draw(st.integers(2, 6))
    names = []
    for number in range(count):
        start = data.draw(st.integers(0, 6))
        steps = list(range(start, start + data.draw(st.integers(1, 3))))
        lats = data.draw(st.sampled_from([(10.0, 20.0), (30.0, 40.0), (40.0, 30.0), (15.0, 20.0)]))
        shift = data.draw(st.sampled_from([0.0, 0.0, 0.0, 1000.0]))
        values = field(steps, lats, (0.0, 5.0)) + np.float32(shift)
        write(
            folder / FILES[number] if number < 5 else folder / "5.nc",
            cube(steps, lats, tas=(("time", "lat", "lon"), values, TAS)),
        )
        names.append(f"{number}.nc")
    first = data.draw(st.integers(1, count - 1))
    order = data.draw(st.permutations(names))
    cut = data.draw(st.integers(first, count))
    how = {"rules": aa.Rules(overlap=data.draw(st.sampled_from(["refuse", "first", "last"])))}
    index = folder / "index.idx"
    agg = save_and_open(aa.open([folder / n for n in sorted(order[:first])], **how), index)
    for part in (order[first:cut], order[cut:]):
        if part:
            agg = agg.append([folder / n for n in part])
            if data.draw(st.booleans()):
                agg = save_and_open(agg, index)
    same(agg, aa.open([folder / n for n in names], **how))


# Several writers


APPEND = """
import sys, time
import aggarray as aa
index, name = sys.argv[1:]
agg = aa.open(index).append(name)
print("ready", flush=True)
sys.stdin.readline()
try:
    agg.save(index)
    print("saved")
except aa.IndexFileError as error:
    print("told", error)
"""


def run(code: str, *arguments: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_two_processes_append_at_once(tmp_path: Path) -> None:
    for t in range(4):
        write(tmp_path / FILES[t], cube([t]))
    index = tmp_path / "index.idx"
    aa.open(tmp_path / FILES[0]).save(index)
    writers = [run(APPEND, index, tmp_path / FILES[t]) for t in (1, 2, 3)]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=60)[0] for writer in writers]
    assert sum(s == "saved\n" for s in said) == 1
    assert sum("modified by another process since" in s and "open it again" in s and "index.idx" in s for s in said) == 2
    winner = next(t for t, s in zip((1, 2, 3), said, strict=True) if s == "saved\n")
    same(aa.open(index), aa.open([tmp_path / FILES[0], tmp_path / FILES[winner]]))
    # The process that got the error appends again, and nothing is lost.
    for t in (1, 2, 3):
        appended(index, tmp_path / FILES[t])
    same(aa.open(index), aa.open(tmp_path / "*.nc"))
    assert [n for n in files_below(tmp_path) if n.startswith(".")] == []


@pytest.mark.parametrize("how", ["saved", "copied", "other"])
def test_an_index_replaced_meanwhile(tmp_path: Path, how: str) -> None:
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    index = tmp_path / "index.idx"
    mine = save_and_open(aa.open(tmp_path / FILES[0]), index)
    grown = mine.append(tmp_path / FILES[1])
    if how == "saved":
        aa.open(index).append(tmp_path / FILES[2]).save(index)
    elif how == "copied":
        # An index of another process, made elsewhere, that may have the same number of saves.
        shutil.copy(index, tmp_path / "other.idx")
        appended(tmp_path / "other.idx", tmp_path / FILES[2])
        os.replace(tmp_path / "other.idx", index)
    else:
        shutil.copy(tmp_path / FILES[2], index)
    before = index.read_bytes()
    with pytest.raises(aa.IndexFileError, match=r"modified by another process since it was opened.*index\.idx.*open it again"):
        grown.save(index)
    assert index.read_bytes() == before
    grown.save(tmp_path / "mine.idx")
    same(aa.open(tmp_path / "mine.idx"), aa.open([tmp_path / FILES[0], tmp_path / FILES[1]]))


def test_another_index_of_the_same_generation(tmp_path: Path) -> None:
    """An index replaced by another one that was saved equally often."""
    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    index = tmp_path / "index.idx"
    mine = save_and_open(aa.open(tmp_path / FILES[0]), index).append(tmp_path / FILES[1])
    index.unlink()
    aa.open([tmp_path / FILES[0], tmp_path / FILES[2]]).save(index)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
        mine.save(index)


def test_copies_that_are_saved_apart_have_different_generations(tmp_path: Path) -> None:
    """A pickled array never reads a copy of its index that was saved with other files in the meantime."""
    import pickle
    import shutil

    from aggarray.index.pickling import _loaded

    for t in range(3):
        write(tmp_path / FILES[t], cube([t]))
    index, copy = tmp_path / "index.idx", tmp_path / "copy.idx"
    aa.open(tmp_path / FILES[0]).save(index)
    shutil.copy(index, copy)
    aa.open(copy).append(tmp_path / FILES[1]).save(copy)
    array = save_and_open(aa.open(index).append(tmp_path / FILES[2]), index)["tas"]
    pickled, expected = pickle.dumps(array), array[...]
    assert np.array_equal(pickle.loads(pickled)[...], expected)
    copy.replace(index)
    _loaded.cache_clear()  # as in another process
    with pytest.raises(aa.IndexFileError, match="saved again since the array was pickled"):
        pickle.loads(pickled)
    assert np.array_equal(array[...], expected)


def test_an_index_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    agg = aa.open(tmp_path / "a.nc")
    agg.save(tmp_path / "index.idx")
    (tmp_path / "index.idx").unlink()
    agg.save(tmp_path / "index.idx")
    same(aa.open(tmp_path / "index.idx"), aa.open(tmp_path / "a.nc"))


def test_remains_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    agg = aa.open(tmp_path / "a.nc")
    (tmp_path / ".in[d]ex.nc.0123abcd.tmp").write_bytes(b"half")
    (tmp_path / ".in[d]ex.nc.lock").write_bytes(b"")
    (tmp_path / ".other.nc.0123abcd.tmp").write_bytes(b"somebody else's")
    (tmp_path / ".index.nc.0123abcd.tmp").write_bytes(b"somebody else's")
    agg.save(tmp_path / "in[d]ex.nc")
    same(aa.open(tmp_path / "in[d]ex.nc"), agg)
    assert files_below(tmp_path) == [".index.nc.0123abcd.tmp", ".other.nc.0123abcd.tmp", "a.nc", "in[d]ex.nc"]


def test_a_save_to_a_link_replaces_its_target(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.nc", cube([0]))
    (tmp_path / "real").mkdir()
    (tmp_path / "link.nc").symlink_to("real/index.nc")
    agg = aa.open(tmp_path / "data")
    agg.save(tmp_path / "link.nc")
    assert (tmp_path / "link.nc").is_symlink() and (tmp_path / "real" / "index.nc").is_file()
    same(aa.open(tmp_path / "link.nc"), agg)
    same(aa.open(tmp_path / "real" / "index.nc"), agg)
    grown = aa.open(tmp_path / "link.nc")
    grown.save(tmp_path / "real" / "index.nc")
    with pytest.raises(aa.IndexFileError, match="exists and is not an index"):
        agg.save(tmp_path / "data" / "a.nc")


def faulty(original: Callable[..., Any]) -> Callable[..., Any]:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise OSError(28, "No space left on device")

    return fail


@pytest.mark.parametrize("call", ["rename", "write"])
def test_a_failed_save_keeps_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    for t in range(2):
        write(tmp_path / FILES[t], cube([t]))
    agg = save_and_open(aa.open(tmp_path / FILES[0]), tmp_path / "index.idx")
    if call == "write":
        monkeypatch.setattr("aggarray.index.container.Container.write_all", faulty(os.replace))
    else:
        monkeypatch.setattr(os, "replace", faulty(os.replace))
    with pytest.raises(aa.IndexFileError, match=r"cannot be written: No space left.*index\.idx"):
        agg.append(tmp_path / FILES[1]).save(tmp_path / "index.idx")
    monkeypatch.undo()
    same(aa.open(tmp_path / "index.idx"), aa.open(tmp_path / FILES[0]))
    assert [n for n in files_below(tmp_path) if n.startswith(".")] == []


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "file.nc", cube([0]))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(aa.IndexFileError, match=r"exists and is not a file: .*pipe"):
        aa.open(tmp_path / "file.nc").save(tmp_path / "pipe")


@pytest.mark.parametrize("where", ["no/such/index.nc", "file.nc/index.nc", ""])
def test_paths_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    write(tmp_path / "file.nc", cube([0]))
    agg = aa.open(tmp_path / "file.nc")
    with pytest.raises(aa.AggarrayError):
        agg.save(tmp_path / where)
    with pytest.raises(aa.AggregationError, match="convention"):
        agg.save(tmp_path / "index.nc", convention="CF-1")
    assert files_below(tmp_path) == ["file.nc"]


def test_lazy_values_of_an_index_saved_again_meanwhile(tmp_path: Path) -> None:
    """Long coordinates are read lazily from the index that was opened, or raise an error."""
    times = np.linspace(0.0, 1.0, 20_000) ** 2  # not an arithmetic progression, which needs no space
    write(tmp_path / "a.nc", {"t": (("t",), times, {"units": "m"}), "v": (("t",), times.astype("f4"))})
    write(tmp_path / "b.nc", {"t": (("t",), times * 2, {"units": "m"}), "v": (("t",), times.astype("f4"))})
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.idx")
    mine = aa.open(tmp_path / "index.idx")["v"]
    aa.open(tmp_path / "b.nc").save(tmp_path / "index.idx")
    with pytest.raises(aa.IndexFileError, match=r"modified by another process since it was opened.*index\.idx.*open it again"):
        mine.coords["t"][:]
    assert np.array_equal(aa.open(tmp_path / "index.idx")["v"].coords["t"][:], times * 2)
