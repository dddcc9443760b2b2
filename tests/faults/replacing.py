"""Threads that open and read files while these are replaced, truncated and restored.

Run `python -m tests.faults.replacing SECONDS [KIND ...]`. Every value encodes its version, file and position. A read returns
values of one version of a file, or raises an error of aggarray.
"""

import faulthandler
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import zarr

import aggarray as aa
from aggarray.read import close_files

THREADS, FILES, VERSIONS, STEPS = 64, 3, 3, 8
SHAPE = (STEPS, 30, 32)
NETCDF: dict[str, dict[str, Any]] = {
    "netcdf3": {"format": "NETCDF3_64BIT_OFFSET"},
    "contiguous": {"contiguous": True},
    "chunked": {"chunksizes": (2, 30, 32)},
    "deflated": {"compression": "zlib", "complevel": 1, "chunksizes": (2, 15, 32)},
    "fletcher32": {"fletcher32": True, "shuffle": True, "chunksizes": (1, 30, 32)},
}
ZARR: dict[str, dict[str, Any]] = {
    "zarr": {"chunks": (4, 30, 32), "compressors": None},
    "zarr-zstd": {"chunks": (2, 15, 32)},
    "zarr-shards": {"chunks": (2, 15, 32), "shards": (8, 30, 32)},
    "zarr-shards-plain": {"chunks": (2, 15, 32), "shards": (8, 30, 32), "compressors": None},
}
#: Arrays of an index and of references, by the layout of the referenced files.
INDEXED = ("index-chunked", "index-deflated", "kerchunk-contiguous", "kerchunk-deflated", "kerchunk-netcdf3")
KINDS = (*NETCDF, "library", *ZARR, *INDEXED)


def values(version: int, number: int) -> np.ndarray:
    """Return integers that single precision represents exactly."""
    noise = np.random.default_rng(number).permutation(np.prod(SHAPE)).reshape(SHAPE)
    return (noise + 100_000 * (number + FILES * version)).astype("f4")


TRUTH = [[values(version, number) for number in range(FILES)] for version in range(VERSIONS)]


def write_netcdf(path: Path, version: int, number: int, how: dict[str, Any]) -> None:
    with netCDF4.Dataset(path, "w", format=how.get("format", "NETCDF4")) as file:
        for name, size in zip(("time", "y", "x"), SHAPE, strict=True):
            file.createDimension(name, size)
        file.createVariable("time", "f8", ("time",)).setncatts({"units": "days since 2000-01-01", "standard_name": "time"})
        file["time"][:] = np.arange(STEPS * number, STEPS * (number + 1))
        more = {key: value for key, value in how.items() if key != "format"}
        file.createVariable("tas", "f4", ("time", "y", "x"), **more)[:] = TRUTH[version][number]


def write_library(path: Path, version: int, number: int) -> None:
    """Write a file with a filter that only the HDF5 library decodes."""
    with h5py.File(path, "w") as file:
        time_ = file.create_dataset("time", data=np.arange(STEPS * number, STEPS * (number + 1)) * 1.0)
        time_.make_scale("time")
        time_.attrs.update({"units": "days since 2000-01-01", "standard_name": "time"})
        whole = TRUTH[version][number].astype("i4")
        tas = file.create_dataset("tas", data=whole, chunks=(2, 30, 32), scaleoffset=0)
        tas.dims[0].attach_scale(time_)


def write_zarr(path: Path, version: int, number: int, how: dict[str, Any]) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("tas", data=TRUTH[version][number], dimension_names=("time", "y", "x"), **how)
    time_ = group.create_array("time", data=np.arange(STEPS * number, STEPS * (number + 1)) * 1.0, dimension_names=("time",))
    time_.attrs.update({"units": "days since 2000-01-01", "standard_name": "time"})


class Stage:
    """Files of one layout, their other versions, and the findings of threads."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.data = kind, folder, folder / "data"
        self.stored = kind.partition("-")[2] if kind.startswith(("index", "kerchunk")) else kind
        self.suffix = ".zarr" if self.stored in ZARR else ".nc"
        for version in range(VERSIONS):
            (folder / str(version)).mkdir()
            for number in range(FILES):
                path = folder / str(version) / f"{number}{self.suffix}"
                if self.stored in ZARR:
                    write_zarr(path, version, number, ZARR[self.stored])
                elif self.stored == "library":
                    write_library(path, version, number)
                else:
                    write_netcdf(path, version, number, NETCDF[self.stored])
        shutil.copytree(folder / "0", self.data)
        self.source = self._source()
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def _source(self) -> Path:
        if self.kind.startswith("index"):
            aa.open(self.data).save(self.folder / "i.nca")
            return self.folder / "i.nca"
        if self.kind.startswith("kerchunk"):
            aa.open(self.data).to_kerchunk(self.folder / "k.json")
            return self.folder / "k.json"
        return self.data

    # Readers

    def read(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self.stop.is_set():
            try:
                array = aa.open(self.source)["tas"]
                for _ in range(chance.randrange(1, 8)):
                    self._check(array, chance)
                    if chance.random() < 0.02:
                        close_files()
            except aa.AggarrayError as error:
                self.counts[type(error).__name__] += 1
                if "\n" in str(error):
                    self.faults.append(f"an error of several lines: {error}")
            except BaseException:
                self.faults.append(traceback.format_exc())

    def _check(self, array: aa.MasterArray, chance: random.Random) -> None:
        low, high = sorted(chance.sample(range(array.shape[0] + 1), 2))
        key = (slice(low, high), chance.choice([slice(None), slice(3, 20), slice(None, None, 7)]), slice(None))
        with aa.set_options(threads=chance.choice([1, 4])):
            result = np.asarray(array.read(key))
        # A file that did not open is absent.
        for block, time_ in enumerate(array.coords["time"][::STEPS].tolist()):
            number, start, stop = int(time_) // STEPS, STEPS * block, STEPS * (block + 1)
            inside = slice(max(start, low) - low, max(min(stop, high), low) - low)
            first = max(low - start, 0)
            rows = np.arange(first, first + len(result[inside]))
            wrong = self._wrong(result[inside], rows, np.arange(SHAPE[1])[key[1]], number)
            if wrong:
                self.faults.append(f"mixed: file {number}, {array.shape} {key}: {wrong}")
        self.counts["right"] += 1

    def _wrong(self, part: np.ndarray, rows: np.ndarray, columns: np.ndarray, number: int) -> str:
        """Describe values that mix versions of a file; in a store, versions may differ between files."""
        how = ZARR.get(self.stored, {})
        side = how.get("shards", how.get("chunks", SHAPE))
        for block in np.unique(rows // side[0]):
            for beside in np.unique(columns // side[1]):
                own = np.ix_(rows // side[0] == block, columns // side[1] == beside)
                piece = part[own]
                version = int(piece.flat[0]) // 100_000 // FILES
                where = np.ix_(rows[rows // side[0] == block], columns[columns // side[1] == beside])
                if version >= VERSIONS or not np.array_equal(piece, TRUTH[version][number][where]):
                    versions = sorted({v // 100_000 // FILES for v in piece.astype(int).ravel().tolist()})
                    return f"versions {versions}, first {piece.flat[0]}"
        return ""

    # Writers

    def change(self, seed: int) -> None:
        """Replace files, or truncate and restore them, in one thread per file."""
        chance, number = random.Random(seed), seed % FILES
        while not self.stop.is_set():
            try:
                version = chance.choice([0, 0, *range(VERSIONS)])
                own = self.folder / str(version) / f"{number}{self.suffix}"
                paths = [own] if own.is_file() else [p for p in own.rglob("*") if p.is_file()]
                # A store is replaced file by file: each chunk has one version.
                for path in paths if chance.random() < 0.7 else chance.sample(paths, 1):
                    target = self.data / own.name / path.relative_to(own) if own.is_dir() else self.data / own.name
                    chance.choice([_replace, _replace, _truncate])(path, target, chance)
            except BaseException:
                self.faults.append(traceback.format_exc())
            # Longer than the resolution of file times; a change within it cannot be detected.
            time.sleep(chance.choice([0.02, 0.03, 0.1]))


def _replace(whole: Path, target: Path, chance: random.Random) -> None:
    temporary = target.with_name(f".{target.name}.{threading.get_ident()}")
    temporary.write_bytes(whole.read_bytes())
    temporary.replace(target)


def _truncate(whole: Path, target: Path, chance: random.Random) -> None:
    """Truncate a file in place and restore it after a pause."""
    data = target.read_bytes()
    size = chance.randrange(len(data) + 1)
    os.truncate(target, size)
    time.sleep(chance.choice([0, 0.001, 0.02]))
    with open(target, "r+b", buffering=0) as file:
        file.seek(size)
        file.write(data[size:])


def run(kind: str, seconds: float) -> Stage:
    """Return the findings of threads that run for a number of seconds."""
    with tempfile.TemporaryDirectory(prefix="aggarray-replaced-") as folder:
        stage = Stage(kind, Path(folder))
        works: list[tuple[Callable[[int], None], int]] = [(stage.read, n) for n in range(THREADS)]
        works += [(stage.change, n) for n in range(FILES)]
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for work, n in works]
        faulthandler.dump_traceback_later(seconds + 60, exit=True)  # ends a hung process
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not stage.faults:
            time.sleep(0.05)
        stage.stop.set()
        for thread in threads:
            thread.join()
        faulthandler.cancel_dump_traceback_later()
        return stage


def main(seconds: float, kinds: Sequence[str]) -> int:
    """Run each layout for its share of the time and print the findings; return 1 if there are errors."""
    total: Counter[str] = Counter()
    faults = 0
    for kind in kinds:
        result = run(kind, seconds / len(kinds))
        print(kind, dict(result.counts), *list(dict.fromkeys(result.faults))[:8], sep="\n  ", flush=True)
        total += result.counts
        faults += len(result.faults)
    return int(bool(faults) or not total["right"])


if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    faulthandler.enable()
    sys.exit(main(float(sys.argv[1]), sys.argv[2:] or KINDS))
