"""Process that opens hostile files one after the other.

``python -m tests.faults.hostile_child SCRATCH`` reads cases from standard input, one line of JSON each (a path, or arguments of
`aggarray.open`), and answers each with ["begun"] and the outcomes of its steps. Memory is limited; a case that times out ends
the process with a traceback.
"""

import contextlib
import faulthandler
import io
import itertools
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aggarray as aa
from aggarray.cli import main as command
from aggarray.display import report
from aggarray.read import close_files

#: Bytes in addition to those at the start of the process, and seconds per case.
MEMORY, SECONDS = 1 << 30, 20
#: Only the corners of arrays of more bytes are read: a small file may define a large array without stored values.
LARGE = 1 << 22

Step = tuple[str, Callable[[], Any]]


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


def _limit() -> None:
    taken = _status("VmSize") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (taken, taken))


def _corners(array: aa.MasterArray) -> None:
    """Read the first and last element, a small array completely, and the source of the last partition."""
    if array.nbytes <= LARGE:
        array.read(masked=True)
    elif array.size:
        array.read((0,) * array.ndim)
        array.read((-1,) * array.ndim)
    for partition in list(array.partitions)[-1:]:
        repr(partition)
        repr(partition.data)


def _steps(agg: aa.Aggregation, source: str, scratch: Path) -> Iterator[Step]:
    """Yield every operation on a file, with its name."""
    for what, one in (("aggregation", agg), *((f"array {array.name!r}", array) for array in agg)):
        yield f"repr of {what}", partial(repr, one)
        yield f"html of {what}", one._repr_html_
    yield "page", partial(report.page, agg)
    for array in agg:
        yield f"read {array.name!r}", partial(_corners, array)
        for name, coordinate in array.coords.items():
            yield f"read {array.name!r}, {name!r}", partial(_corners, coordinate)
    yield "check of all", lambda: "\n".join(problem.message for problem in agg.check().problems)
    yield "save", lambda: (agg.save(scratch / "saved.nca"), repr(aa.open(scratch / "saved.nca")))[1]
    yield from _commands(source, ("info", "explain", "check", "distribute -n 2"))


def _commands(source: str, names: tuple[str, ...] = ("info",)) -> Iterator[Step]:
    """Yield commands that read a file."""
    for words in names:
        yield words, partial(_shell, [*words.split(), source])


def _shell(words: list[str]) -> str:
    """Run a command and return its output on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command(words)
        except SystemExit as stop:
            if stop.code not in (0, 1, 2):
                raise
    return out.getvalue() + err.getvalue()


def _tried(name: str, step: Callable[[], Any]) -> list[Any]:
    """Return [name, class of the error or None, message or output]."""
    try:
        result = step()
    except aa.AggarrayError as error:
        return [name, type(error).__name__, str(error), "fault" if _wanted_memory(error) else "told"]
    except Exception as error:  # any other exception is a fault
        import traceback

        places = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-6:]
        return [name, type(error).__name__, f"{str(error)[:300]} {places}", "fault"]
    return [name, None, result if isinstance(result, str) else "", "done"]


def _wanted_memory(error: BaseException | None) -> bool:
    """Return whether an error is due to the memory limit of this process."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def outcome(given: dict[str, Any], scratch: Path) -> list[list[Any]]:
    """Return the outcomes of up to 60 steps; opening is the first, the others depend on it."""
    opened: list[aa.Aggregation] = []
    result = [_timed("open", lambda: opened.append(aa.open(**given, processes=1)))]
    steps = _steps(opened[0], str(given["source"]), scratch) if opened else _commands(str(given["source"]))
    return [*result, *(_timed(name, step) for name, step in itertools.islice(steps, 60))]


def _timed(name: str, step: Callable[[], Any]) -> list[Any]:
    start = time.perf_counter()
    return [*_tried(name, step), time.perf_counter() - start]


def main(scratch: str) -> None:
    """Run the cases of standard input."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    _limit()
    for line in sys.stdin:
        given = json.loads(line)
        given = given if isinstance(given, dict) else {"source": given}
        print(json.dumps(["begun"]), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before, start = _status("VmRSS"), time.perf_counter()
        result = outcome(given, Path(scratch))
        taken = time.perf_counter() - start
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([result, taken, _status("VmHWM") - before]), flush=True)
        close_files()


if __name__ == "__main__":
    main(*sys.argv[1:])
