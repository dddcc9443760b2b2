"""Which files does a source name, and what do they hold?

`find_files` turns paths, globs, folders and lists into files. `scan_files` reads the structure of each, once; with several
processes, helpers that run `aggarray._scan` take batches beside this one and send their results back as they come.
"""

import contextlib
import functools
import glob
import hashlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from aggarray.errors import AggarrayError, AggregationError, FormatError, MissingFileError
from aggarray.formats import is_store, local_path, scan
from aggarray.formats.base import Structure, Variable

#: A helper takes this many files at a time.
BATCH = 16
#: Fewer files than this are not worth the start of a helper ...
FEW_FILES = 64
#: ... nor are those that are scanned in so many seconds here, by the pace of the latest.
PATIENCE = 2.0
#: Coordinates of at least this many bytes are held once, however many files have them.
SHARED_BYTES = 128

Source = str | bytes | os.PathLike[Any] | Iterable[Any]
Progress = Callable[[int, int, str], None]
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")


def find_files(source: Source) -> list[str]:
    """Return the absolute paths of the files (and Zarr stores) that a source names, each once.

    ``source``: a path, a glob (``**`` allowed), a folder (searched to its bottom, hidden names and links to folders left
    out) or an iterable of these: items in the order given, each sorted within. Raises MissingFileError for a pattern or
    folder that names nothing; a path that is not there is found out when it is scanned. AggregationError for what is no
    path, FormatError for a remote one.
    """
    found: dict[str, None] = {}
    for item in _sources(source):
        found.update(dict.fromkeys(_expand(local_path(item))))
    if not found:
        raise MissingFileError("no files: give a path, a glob, a folder or a list of these")
    return list(found)


def listed(source: Source) -> list[Any]:
    """Return the items of a source, to be gone through more than once; AggregationError for what is no path."""
    return list(_sources(source))


def named_files(items: Sequence[Any]) -> list[str]:
    """Return the absolute paths of the files that a source names one by one, rather than by a folder or a pattern."""
    paths = map(local_path, items)
    return [os.path.abspath(p) for p in paths if os.path.isfile(p) or is_store(p)]


def _sources(source: Any) -> Iterator[Any]:
    """Yield what a source lists; AggregationError for anything but paths."""
    try:
        single = isinstance(source, str | bytes | os.PathLike)
        items = iter((source,) if single else source)
    except TypeError:
        # Objects of libraries may have the method and refuse all the same.
        single, items = True, iter((source,))
    for item in items:
        if not isinstance(item, str | bytes | os.PathLike):
            what = f"{' '.join(repr(item).split()):.60} ({type(item).__name__}{'' if single else ', in a list or the like'})"
            raise AggregationError(f"source {what} is no path: give a path, a glob, a folder or a flat list of these")
        yield item


def _expand(path: str) -> Iterator[str]:
    if not os.path.lexists(path) and glob.has_magic(path):
        inside = functools.cache(_inside_store)
        matches = [m for m in glob.iglob(_literal_start(path), recursive=True) if not inside(os.path.dirname(m))]
        names = [m for m in matches if os.path.isfile(m) or is_store(m)]
        if not names:
            raise MissingFileError(f"{path}: no file matches; check the pattern")
        yield from sorted(map(os.path.abspath, names))
    elif os.path.isdir(path) and not is_store(path):
        names = list(_walk(path))
        if not names:
            raise MissingFileError(f"{path}: no files in this folder; check the path")
        yield from sorted(map(os.path.abspath, names))
    else:
        yield os.path.abspath(path)


def _literal_start(pattern: str) -> str:
    """Escape the longest beginning of a pattern that is a folder: its brackets are part of its name."""
    parts = pattern.split(os.sep)
    for count in range(len(parts) - 1, 0, -1):
        folder = os.sep.join(parts[:count])
        if glob.has_magic(folder) and os.path.isdir(folder):
            return os.sep.join([glob.escape(folder), *parts[count:]])
    return pattern


def _walk(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        stores = [d for d in folders if is_store(os.path.join(here, d))]
        yield from (os.path.join(here, d) for d in stores)
        folders[:] = sorted(d for d in folders if d not in stores and not d.startswith("."))
        yield from (os.path.join(here, f) for f in files if not f.startswith("."))


def _inside_store(folder: str) -> bool:
    """Tell whether a folder is or lies within a Zarr store: chunks are no files of their own."""
    while folder and folder != os.path.dirname(folder):
        if is_store(folder):
            return True
        folder = os.path.dirname(folder)
    return False


Scanned = tuple[str, Structure | AggarrayError]


def scan_one(path: str) -> Structure | AggarrayError:
    """Return the structure of a file, or the error that it gave: one bad file stops nobody."""
    try:
        return scan(path)
    except AggarrayError as error:
        return error


def scan_files(paths: Sequence[str], processes: int | None = None, progress: Progress | None = None) -> list[Scanned]:
    """Scan every file, in the order given.

    ``processes``: how many work on it, this one included; None: one for few files, for those that are scanned quickly and
    under MPI, else as many as cores.
    """
    wanted = processes if processes is not None else _usual_processes(len(paths))
    results: list[Structure | AggarrayError | None] = [None] * len(paths)
    batches: queue.SimpleQueue[range] = queue.SimpleQueue()
    for start in range(0, len(paths), BATCH):
        batches.put(range(start, min(start + BATCH, len(paths))))
    keep = _keeper(results, _reporter(len(paths), progress))
    count = min(wanted - 1, len(paths) // BATCH)
    work = (batches, paths, keep)
    helpers = [threading.Thread(target=_lead, args=work, daemon=True) for _ in range(count)]
    started = _starter(helpers, len(paths), processes is not None)

    def work_on(number: int) -> None:
        keep(number, scan_one(paths[number]))
        started()

    _drain(batches, work_on)
    for helper in helpers:
        if helper.ident is not None:
            helper.join()
    # A helper that died leaves its batch undone: it is done here.
    for number, path in enumerate(paths):
        if results[number] is None:
            keep(number, scan_one(path))
    return [(path, result) for path, result in zip(paths, results, strict=True) if result is not None]


def _usual_processes(files: int) -> int:
    if files < FEW_FILES or any(name in os.environ for name in _MPI_VARIABLES):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _starter(helpers: Sequence[threading.Thread], files: int, at_once: bool) -> Callable[[], None]:
    """Return what starts the helpers, at once or when they pay; it is to be called after every file that was scanned here."""
    waiting, done, begun = list(helpers), 0, time.monotonic()

    def start() -> None:
        while waiting:
            waiting.pop().start()

    def count() -> None:
        nonlocal done, begun
        done += 1
        if waiting and done % BATCH == 0:
            now = time.monotonic()
            # The first files of all are slow: libraries are imported, nothing is known yet.
            if done > BATCH and (now - begun) / BATCH * (files - done) > PATIENCE:
                start()
            begun = now

    if at_once:
        start()
    return count


def _reporter(total: int, progress: Progress | None) -> Callable[[], None]:
    lock, done = threading.Lock(), 0

    def report() -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += 1
                progress(done, total, "scanning")

    return report


Keep = Callable[[int, Structure | AggarrayError], None]


def sharing() -> Callable[[Structure], Structure]:
    """Return a function through which structures go, so that equal coordinates of different files are held in memory once."""
    known: dict[tuple[Any, ...], np.ndarray] = {}

    def shared(variable: Variable) -> Variable:
        values = variable.values
        if values is None or values.nbytes < SHARED_BYTES or values.dtype.kind not in "iuf":
            return variable
        values.flags.writeable = False
        digest = hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
        first = known.setdefault((values.shape, values.dtype, digest), values)
        return variable if first is values else replace(variable, values=first)

    return lambda structure: replace(structure, variables=tuple(map(shared, structure.variables)))


def _keeper(results: list[Any], report: Callable[[], None]) -> Keep:
    """Return what stores a result."""
    share = sharing()

    def keep(number: int, result: Structure | AggarrayError) -> None:
        results[number] = share(result) if isinstance(result, Structure) else result
        report()

    return keep


def _drain(batches: "queue.SimpleQueue[range]", work: Callable[[int], None]) -> None:
    while True:
        try:
            batch = batches.get_nowait()
        except queue.Empty:
            return
        for number in batch:
            work(number)


def _lead(batches: "queue.SimpleQueue[range]", paths: Sequence[str], keep: Keep) -> None:
    """Feed one helper process, batch by batch, and collect what it answers."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        helper = subprocess.Popen(
            [sys.executable, "-m", "aggarray._scan"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search},
        )
    except OSError:
        return
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError), helper:
        if helper.stdin is None or helper.stdout is None:
            return

        def ask(batch: range) -> None:
            send(helper.stdin, [paths[n] for n in batch])  # type: ignore[arg-type]
            for number in batch:
                keep(number, receive(helper.stdout))  # type: ignore[arg-type]

        while True:
            try:
                batch = batches.get_nowait()
            except queue.Empty:
                break
            ask(batch)
        helper.stdin.close()


def send(stream: IO[bytes], item: Any) -> None:
    """Write one object, its length first."""
    data = pickle.dumps(item, protocol=5)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one object that `send` wrote; EOFError at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<q", head)[0]))


def unreadable(path: str, error: AggarrayError) -> str:
    """Return why a file was passed over, without repeating its path."""
    text = str(error)
    return text.removeprefix(f"{path}: ") if isinstance(error, FormatError) else text
