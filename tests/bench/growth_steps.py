"""Steps of the benchmark `growth`, and the process that measures one: ``python -m tests.bench.growth_steps``.

Two kinds of archives: ``files``, netCDF-4 files of one time step each, and ``partitions``, an index of as many files that need
not exist, since only their names, states and positions are used.
"""

import gc
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import memory_status

#: Files that `append` adds, and partitions of the slice that is planned.
MORE, SLICE = 100, 50
#: Ranks among which partitions are distributed.
_RANKS = 64
#: Files per folder.
_FOLDER = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files and indexes of an archive of ``count`` files or partitions lie."""

    folder: Path
    kind: str
    count: int

    @property
    def index(self) -> Path:
        """The index that the step `save` writes."""
        return self.folder / f"{self.kind}-{self.count}.nca"

    @property
    def files(self) -> list[Path]:
        """The files: folders of a thousand, or fewer files."""
        folders = sorted((self.folder / "data").iterdir())[: -(-self.count // _FOLDER)]
        return folders if self.count % _FOLDER == 0 else sorted(folders[0].iterdir())[: self.count]

    @property
    def more(self) -> Path:
        """The folder of the files that `append` adds: the time steps that follow."""
        return self.folder / f"more-{self.count}"


@dataclass(frozen=True, slots=True)
class Step:
    """A step: ``prepare(place)`` returns ``given`` (not measured), ``work(given)`` is measured.

    ``kinds``: those it is measured for; ``most``: the largest size.
    """

    prepare: Callable[[Place], Any]
    work: Callable[[Any], Any]
    kinds: tuple[str, ...] = ("files", "partitions")
    most: int = 10**9


def _aggregation(place: Place) -> Any:
    """Return the aggregation that a step saves: scanned files, or an array of partitions."""
    import aggarray as aa

    if place.kind == "files":
        return aa.open(place.files)
    return partitions(place.count, next((place.folder / "data").rglob("*.nc")))


def partitions(count: int, file: Path) -> Any:
    """Return an aggregation of one file per step, in an irregular order, each like the first.

    The names are those of files that do not exist; each has a state, as scanned files have.
    """
    import aggarray as aa
    from aggarray.codecs import Filter
    from aggarray.index.indexed_files import Files
    from aggarray.index.uris import NOWHERE
    from aggarray.memory.texts import Texts
    from aggarray.opening.aggregation import Aggregation
    from aggarray.partition.chunk_tables import ChunkTables
    from aggarray.partition.matrix import Matrix, References

    first = aa.open(file)["tas"]
    before, middle = b"/archive/model/run/tas_day_model_historical_", b".nc"
    numbers = np.arange(count)
    names = np.empty((count, len(before) + 8 + len(middle)), np.uint8)
    names[:, : len(before)], names[:, -len(middle) :] = np.frombuffer(before, np.uint8), np.frombuffer(middle, np.uint8)
    for digit in range(8):
        names[:, len(before) + digit] = ord("0") + numbers // 10 ** (7 - digit) % 10
    uris = Files(Texts(names.reshape(-1), np.full(count, names.shape[1])), "/", NOWHERE)
    random = np.random.default_rng(0)
    stamps = np.stack([np.full(count, 9000), 10**18 + random.integers(0, 10**15, count), numbers * 7919 % 2**32], axis=1)
    own, rows, none = first._matrix.references, numbers.astype(np.int32), np.zeros(count, np.int32)
    chunk: Any = ((1, *first.shape[1:]),) * 2
    layouts = [(*chunk, np.dtype("f4"), (Filter("deflate"),), None)]
    chunks = np.arange(count + 1), 4000 + random.integers(0, 4000, count), random.integers(100, 200, count), None
    tables = ChunkTables(uris, stamps, list(own.variables), layouts, rows, none, none, *chunks)
    references = References(uris, own.variables, own.templates, (), rows, none, none, stamps, tables)
    edges = (np.arange(count + 1), *first._matrix.edges[1:])
    order = random.permutation(count).astype(np.int32)
    time = first.coords["time"]
    # Steps of a minute, so that ten million stay within the years of the nanoseconds that xarray decodes to.
    units = str(time.units).replace("hours", "minutes")
    steps = aa.SubArray.from_array(np.arange(count, dtype="f8"), dimensions=("time",), units=units, calendar=time.calendar)
    axis = aa.MasterArray.from_subarrays([([(0, count)], steps)], dimensions=("time",), name="time")
    matrix = Matrix(first.dimensions, first.directions, edges, references, order)
    coords = {**first.coords, "time": axis}
    described = first.units, first.calendar, first.fill_value
    return Aggregation((aa.MasterArray("tas", first.dtype, *described, matrix, first.attrs, first.file_attrs, coords),))


def _to_save(place: Place) -> Any:
    import netCDF4  # noqa: F401

    place.index.unlink(missing_ok=True)
    return _aggregation(place), place.index


def _save(given: Any) -> None:
    agg, path = given
    agg.save(path)


def _opened(place: Place) -> Any:
    import aggarray as aa

    if not place.index.exists():
        _aggregation(place).save(place.index)
    return aa.open(place.index)


def _array(place: Place) -> Any:
    return _opened(place)["tas"]


def _scan(given: Any) -> Any:
    import aggarray as aa

    return aa.open(given)["tas"].shape


def _to_append(place: Place) -> Any:
    return _opened(place), place.more


def _append(given: Any) -> Any:
    agg, more = given
    longer = agg.append(more)
    assert len(longer["tas"]) == len(agg["tas"]) + MORE, longer
    return longer


def _sel(array: Any) -> Any:
    """Select the first day."""
    return array.sel(time="2000-01-01")


def _to_plan(place: Place) -> Any:
    array = _array(place)
    _plan(array, 0)  # imports
    return array


def _plan(array: Any, start: int | None = None) -> Any:
    """Plan a read of fifty partitions, from the middle on, including file names."""
    from aggarray.memory.selection import normalise
    from aggarray.partition.plan import pieces, plan_dimension

    start = array.shape[0] // 2 if start is None else start
    matrix = array._matrix
    selectors = normalise(slice(start, start + SLICE), array.shape, array.dimensions)
    planned = pieces(matrix, [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)])
    return [matrix.references.uri_of(piece.ref) for piece in planned]


def _with_dask(place: Place) -> Any:
    import dask.array  # noqa: F401
    import xarray  # noqa: F401

    return _array(place)


def _to_xarray(array: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # years for which xarray takes dates of cftime
        return array.to_xarray()


def _to_chunks(place: Place) -> Any:
    array = _with_dask(place)
    return array.to_dask().chunks, array.dtype


def _dask_alone(given: Any) -> Any:
    """Make an array of dask with the chunks of `to_dask`, without aggarray."""
    import dask.array

    chunks, dtype = given
    return dask.array.zeros(tuple(map(sum, chunks)), chunks=chunks, dtype=dtype)


def _to_subarrays(place: Place) -> Any:
    import aggarray as aa

    values = np.arange(place.count * 4, dtype="f4").reshape(-1, 4)
    return [
        (((n, n + 1), (0, 4)), aa.SubArray.from_array(values[n : n + 1], dimensions=("y", "x"))) for n in range(place.count)
    ]


def _from_subarrays(pieces: Any) -> Any:
    import aggarray as aa

    return aa.MasterArray.from_subarrays(pieces, dimensions=("y", "x"))


def _from_partitions(array: Any) -> Any:
    from aggarray.dap import Distribution

    return [Distribution.from_partitions(array, _RANKS, balance=balance) for balance in ("contiguous", "cost")]


def _html(agg: Any) -> int:
    return len(agg._repr_html_() + agg.arrays[0]._repr_html_())


def _page(agg: Any) -> int:
    from aggarray.report import page

    return len(page(agg))


STEPS = {
    "open the files": Step(lambda place: place.files, _scan, ("files",)),
    "save": Step(_to_save, _save),
    "open the index": Step(lambda place: _opened(place) and place.index, _scan),
    f"append {MORE} files": Step(_to_append, _append, most=10**6),
    "sel": Step(_array, _sel),
    f"plan a slice of {SLICE}": Step(_to_plan, _plan),
    "to_dask": Step(_with_dask, lambda array: array.to_dask()),
    "dask alone": Step(_to_chunks, _dask_alone),
    "to_xarray": Step(_with_dask, _to_xarray),
    "Distribution.from_partitions": Step(_array, _from_partitions),
    "MasterArray.from_subarrays": Step(_to_subarrays, _from_subarrays, ("partitions",), most=10**6),
    "repr": Step(_opened, lambda agg: repr(agg) + repr(agg.arrays[0])),
    "HTML of a notebook": Step(_opened, _html),
    "HTML page": Step(_opened, _page),
}


def make(folder: Path, kind: str, counts: list[int]) -> None:
    """Write the files of archives of all sizes; steps write the indexes."""
    from tests.bench.load import write_files

    (folder / "data").mkdir(exist_ok=True)
    write_files(folder / "data", max(counts) if kind == "files" else 1)
    for count in counts:
        place = Place(folder, kind, count)
        place.more.mkdir()
        write_files(place.more, MORE, first_step=count)


def measured(name: str, place: Place) -> dict[str, float]:
    """Do a step once; return its seconds, those of processors, and bytes.

    ``bytes``: the peak of this process during the work, less what it held before; ``peak``: the peak from its start on.
    """
    step = STEPS[name]
    given = step.prepare(place)
    gc.collect()
    started_with = _peak()
    _reset_peak()
    before, processor, clock = memory_status("VmRSS"), _processor_seconds(), time.perf_counter()
    result = step.work(given)
    seconds, processor = time.perf_counter() - clock, _processor_seconds() - processor
    peak = _peak()
    del result
    return {"seconds": seconds, "processor": processor, "bytes": max(0, peak - before), "peak": max(peak, started_with)}


def _processor_seconds() -> float:
    """Return the seconds of processors of this process, and of those it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _reset_peak() -> None:
    """Forget the peak so far, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak() -> int:
    return memory_status("VmHWM")


if __name__ == "__main__":
    folder, kind, numbers, *steps = sys.argv[1:]
    if steps:
        print(json.dumps(measured(steps[0], Place(Path(folder), kind, int(numbers)))), flush=True)
    else:
        make(Path(folder), kind, list(map(int, numbers.split(","))))
