"""Stateful test: aggregations stay correct under any sequence of operations on them and their files.

The machine opens, appends, saves and reopens; writes, rewrites, touches, damages and removes files; renames the folder. The
model is a dictionary of the files of each aggregation, their content at the scan and now. `DEPTH=50` runs longer.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import aggarray as aa
from aggarray.errors import ChangedFileError
from aggarray.read import close_files
from tests.support.examples import examples
from tests.support.netcdf import TIME, write

pytestmark = pytest.mark.quick

DEPTH = int(os.environ.get("DEPTH", "1"))
#: Time steps per file, and number of files.
STEPS, SLOTS = 3, 4
WIDTH = 2
#: Storage layouts of a file; values are multiples of one half, which packing keeps exactly.
STORED: tuple[dict[str, Any], ...] = (
    {"format": "NETCDF3_CLASSIC"},
    {"format": "NETCDF3_64BIT_OFFSET", "unlimited": ("time",)},
    {"format": "NETCDF4"},
    {"format": "NETCDF4", "packed": True},
)


@dataclass(frozen=True)
class Kept:
    """The content of a file at its scan."""

    content: bytes
    time: int
    values: np.ndarray


@dataclass
class Known:
    """An aggregation and its model.

    ``base``: the folder that its paths name; ``files``: by number; ``index``: path and generation of the index that it still
    has to read from; ``looked``: whether a check has filled caches; ``saved``: generations, by path, of the indexes that it may
    overwrite.
    """

    agg: aa.Aggregation
    base: str
    files: dict[int, Kept]
    fill: bool = False
    index: tuple[str, int] | None = None
    looked: bool = False
    saved: dict[str, int] = field(default_factory=dict)

    def path(self, slot: int) -> str:
        return os.path.join(self.base, f"{slot}.nc")


@dataclass(frozen=True)
class Saved:
    """An index: its path below the folder, the folder of its files relative to it, and its model."""

    path: str
    base: str
    relative: bool
    files: dict[int, Kept]
    generation: int


class Aggregations(RuleBasedStateMachine):
    """Aggregations of the files of one folder, which is renamed."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.top = os.path.realpath(tempfile.mkdtemp())
        self.moves, self.clock, self.version = 0, 1_000_000_000, 0
        self.folder = os.path.join(self.top, "0")
        os.mkdir(self.folder)
        #: Content of the folder: values, None for a file that is not data.
        self.disk: dict[int, np.ndarray | None] = {}
        self.stored: dict[int, int] = {}
        self.live: list[Known] = []
        self.indexes: dict[str, Saved] = {}

    def teardown(self) -> None:
        close_files()
        shutil.rmtree(self.top)

    # State of the folder

    def path(self, slot: int) -> str:
        return os.path.join(self.folder, f"{slot}.nc")

    def tick(self, slot: int) -> None:
        """Give a file a modification time that no file had before."""
        self.clock += 10**9
        os.utime(self.path(slot), ns=(self.clock, self.clock))

    def now(self, slot: int) -> Kept | None:
        """Return the content that a scan finds in a file; None if it is not data."""
        values = self.disk.get(slot)
        path = Path(self.path(slot))
        return None if values is None else Kept(path.read_bytes(), os.stat(path).st_mtime_ns, values)

    def readable(self) -> dict[int, Kept]:
        return {slot: kept for slot in self.disk if (kept := self.now(slot)) is not None}

    @initialize(target=known)
    def first(self) -> Any:
        self.write(0, 0)
        self.write(1, 3)
        return self.open(False)

    def kept(self, one: Known) -> Known:
        """Add an aggregation to the latest ones, which are read after every step."""
        self.live = [*self.live[-2:], one]
        return one

    # Files

    @rule(slot=st.integers(0, SLOTS - 1), stored=st.integers(0, len(STORED) - 1))
    def write(self, slot: int, stored: int) -> None:
        """Write or overwrite a file with new values in any storage layout."""
        how = dict(STORED[stored])
        self.version += 1
        times = np.arange(STEPS * slot, STEPS * (slot + 1), dtype="f8")
        values = (self.version + np.arange(STEPS * WIDTH).reshape(STEPS, WIDTH) / 2).astype("f4")
        attrs: dict[str, Any] = {"units": "K"}
        held: np.ndarray = values
        if how.pop("packed", False):
            attrs |= {"scale_factor": np.float32(0.5)}
            held = (values * 2).astype("i2")
        if os.path.exists(self.path(slot)):
            os.unlink(self.path(slot))
        write(self.path(slot), {"time": (("time",), times, TIME), "tas": (("time", "x"), held, attrs)}, **how)
        self.disk[slot], self.stored[slot] = values, stored
        self.tick(slot)

    @rule(data=st.data())
    def rewrite(self, data: Any) -> None:
        """Give a file new values in the same layout and size."""
        slots = sorted(slot for slot, values in self.disk.items() if values is not None)
        if slots:
            slot = data.draw(st.sampled_from(slots))
            self.write(slot, self.stored[slot])

    @rule(slot=st.integers(0, SLOTS - 1))
    def remove(self, slot: int) -> None:
        if self.disk.pop(slot, self) is not self:
            os.unlink(self.path(slot))

    @rule(slot=st.integers(0, SLOTS - 1))
    def touch(self, slot: int) -> None:
        """Change the modification time of a file, not its bytes."""
        if slot in self.disk:
            self.tick(slot)

    @rule(slot=st.integers(0, SLOTS - 1))
    def spoil(self, slot: int) -> None:
        """Replace a file by one that is not data."""
        Path(self.path(slot)).write_bytes(b"no data")
        self.disk[slot] = None
        self.tick(slot)

    @rule()
    def move(self) -> None:
        """Rename the folder: open aggregations keep the old paths, indexes move with it."""
        self.moves += 1
        target = os.path.join(self.top, str(self.moves))
        os.rename(self.folder, target)
        self.folder = target

    # Aggregations

    @rule(target=known, fill=st.booleans())
    def open(self, fill: bool) -> Any:
        result = self.readable()
        if not result:
            with pytest.raises(aa.FormatError):  # a MissingFileError if there is no file
                aa.open(os.path.join(self.folder, "*.nc"), processes=1)
            return multiple()
        agg = aa.open(os.path.join(self.folder, "*.nc"), processes=1, missing="fill" if fill else "raise")
        assert {os.path.basename(s.file) for s in agg.skipped} == {f"{s}.nc" for s, v in self.disk.items() if v is None}
        return self.kept(Known(agg, self.folder, result, fill))

    @rule(target=known, one=known)
    def append(self, one: Known) -> Any:
        """Append the folder: unchanged and missing files keep their known content."""
        if one.base != self.folder or not self.disk:
            return multiple()
        if self.is_lost(one):
            with pytest.raises(aa.AggarrayError):
                one.agg.append(os.path.join(self.folder, "*.nc"))
            return multiple()
        one.index = None
        agg = one.agg.append(os.path.join(self.folder, "*.nc"))
        files = {slot: kept for slot, kept in one.files.items() if slot not in self.disk}
        for slot in self.disk:
            kept, before = self.now(slot), one.files.get(slot)
            size_and_time = os.stat(self.path(slot))
            if before is not None and (size_and_time.st_size, size_and_time.st_mtime_ns) == (len(before.content), before.time):
                files[slot] = before
            elif kept is not None:
                files[slot] = kept
        return self.kept(Known(agg, one.base, files, one.fill, saved=dict(one.saved)))

    @rule(
        one=known,
        name=st.sampled_from(["a.nca", "sub/b.nca"]),
        relative=st.booleans(),
        convention=st.sampled_from(["CF-1.13", "CFA-0.4"]),
    )
    def save(self, one: Known, name: str, relative: bool, convention: str) -> None:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        there = self.indexes.get(name)
        conflict = path in one.saved and (there is None or there.generation != one.saved[path])
        if self.is_lost(one) or (conflict and there is not None):
            with pytest.raises(aa.AggarrayError):
                one.agg.save(path, convention=convention, relative=relative)
            return
        one.index = None
        one.agg.save(path, convention=convention, relative=relative)
        generation = 1 if there is None else there.generation + 1
        base = os.path.relpath(one.base, os.path.dirname(path)) if relative else one.base
        one.saved[path] = generation
        self.indexes[name] = Saved(name, base, relative, dict(one.files), generation)

    @precondition(lambda self: self.indexes)
    @rule(target=known, data=st.data(), fill=st.booleans(), relocated=st.booleans())
    def reopen(self, data: Any, fill: bool, relocated: bool) -> Any:
        saved = self.indexes[data.draw(st.sampled_from(sorted(self.indexes)))]
        path = os.path.join(self.folder, saved.path)
        moved = {saved.base: self.folder} if relocated and not saved.relative else None
        agg = aa.open(path, relocate=moved, missing="fill" if fill else "raise")
        base = os.path.normpath(os.path.join(os.path.dirname(path), saved.base))
        index = (path, saved.generation)
        result = Known(agg, self.folder if moved else base, dict(saved.files), fill, index, saved={path: index[1]})
        return self.kept(result)

    def is_lost(self, one: Known) -> bool:
        """Return whether the index that an aggregation has to read from is missing."""
        if one.index is None:
            return False
        path, generation = one.index
        there = self.indexes.get(os.path.relpath(path, self.folder))
        return there is None or there.generation != generation

    # Reads and checks

    def fault(self, one: Known, slot: int) -> type[aa.AggarrayError] | None:
        """Return the error of reading a file that changed since the scan, except in its time; None if it has not changed."""
        path, kept = one.path(slot), one.files[slot]
        if not os.path.exists(path):
            return aa.MissingFileError
        return None if Path(path).read_bytes() == kept.content else ChangedFileError

    @rule(one=known, data=st.data(), masked=st.booleans())
    def read(self, one: Known, data: Any, masked: bool) -> None:
        if one.files:
            size = STEPS * len(one.files)
            key = data.draw(st.one_of(st.slices(size), st.integers(0, size - 1)))
            self.hold(one, key, masked)

    @invariant()
    def everything_reads(self) -> None:
        for one in self.live:
            if one.files:
                self.hold(one, slice(None), True)
            else:
                assert "tas" not in one.agg

    def hold(self, one: Known, key: Any, masked: bool) -> None:
        """Read a part of an aggregation: the correct values, or the error of a file in it."""
        tas, slots = one.agg["tas"], sorted(one.files)
        expected = np.concatenate([one.files[slot].values for slot in slots])
        assert (
            tas.shape == expected.shape
            and tas.dtype == np.dtype("f4")
            and tas.pmshape == ((len(slots),) if len(slots) > 1 else ())
        )
        rows = np.arange(len(expected))[key]
        touched = [slots[i] for i in np.unique(rows // STEPS).tolist()]
        faults = {slot: fault for slot in touched if (fault := self.fault(one, slot)) is not None}
        gone = [slot for slot, fault in faults.items() if fault is aa.MissingFileError]
        if one.fill:
            faults = {slot: fault for slot, fault in faults.items() if slot not in gone}
        if faults:
            with pytest.raises(tuple(faults.values())) as error:
                tas.read(key, masked=masked)
            assert any(one.path(slot) in str(error.value) for slot in faults) and "\n" not in str(error.value)
            return
        missing = np.repeat(np.isin(slots, gone), STEPS)
        result = tas.read(key, masked=masked)
        expected = np.where(missing[:, None], np.float32("nan"), expected)[key]
        np.testing.assert_array_equal(np.ma.filled(result, np.nan), expected)
        if masked:
            np.testing.assert_array_equal(
                np.ma.getmaskarray(result), np.broadcast_to(missing[:, None], (len(missing), WIDTH))[key]
            )
        times = np.concatenate([np.arange(STEPS * s, STEPS * (s + 1)) for s in slots])
        np.testing.assert_array_equal(tas.coords["time"][key], times[key])

    @rule(one=known)
    def check(self, one: Known) -> None:
        if self.is_lost(one) and not one.looked:
            with pytest.raises(aa.AggarrayError):
                one.agg.check()
            return
        one.looked = True
        paths = {one.path(slot): slot for slot in one.files}
        result = {p.file: p.kind for p in one.agg.check().problems if p.file in paths and p.kind not in ("gap", "hole")}
        assert result == dict(self.problems(one))

    def problems(self, one: Known) -> Iterator[tuple[str, str]]:
        for slot, kept in one.files.items():
            path = one.path(slot)
            if not os.path.exists(path):
                yield path, "missing"
            elif one.base == self.folder and self.disk[slot] is None:
                yield path, "unreadable"
            elif (os.stat(path).st_size, os.stat(path).st_mtime_ns) != (len(kept.content), kept.time):
                yield path, "changed"

    @invariant()
    def no_leftovers(self) -> None:
        """The folder contains no leftover files."""
        names = {
            os.path.join(os.path.relpath(top, self.folder), name) for top, _, names in os.walk(self.folder) for name in names
        }
        expected = {*(f"{slot}.nc" for slot in self.disk), *self.indexes}
        assert {os.path.normpath(name) for name in names} == expected


def test_aggregations() -> None:
    how = settings(max_examples=examples(25 * DEPTH), stateful_step_count=25)
    with aa.set_options(threads=1):
        run_state_machine_as_test(Aggregations, settings=how)
