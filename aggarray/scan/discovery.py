"""Which files does a source name, and what do they hold?

`find_files` turns paths, globs, folders and lists into files. `scan_files` reads the structure of each, once, by as many
processes as `helpers` gets to work.
"""

import functools
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from aggarray.errors import AggarrayError, AggregationError, FormatError, MissingFileError
from aggarray.formats import given_path, is_store
from aggarray.formats.base import Structure, Variable
from aggarray.formats.unsupported import unsupported_folder
from aggarray.scan.pickling import Interner
from aggarray.scan.workers import Result, Task, WorkerPool
from aggarray.storage.files import absolute, is_file
from aggarray.storage.remote import expand, has_magic, is_remote

Source = str | bytes | os.PathLike[Any] | Iterable[Any]
Progress = Callable[[int, int, str], None]


def find_files(source: Source) -> list[str]:
    """Return the absolute paths of the files (and Zarr stores) that a source names, each once.

    ``source``: a path, a glob (``**`` allowed), a folder (searched to its bottom, hidden names and links to folders left
    out) or an iterable of these: items in the order given, each sorted within. Raises MissingFileError for a pattern or
    folder that names nothing; a path that is not there is found out when it is scanned. AggregationError for what is no
    path. Remote folders and patterns are listed as far as their servers do.
    """
    found: dict[str, None] = {}
    for item in _sources(source):
        found.update(dict.fromkeys(filter(_is_wanted, _expand(given_path(item)))))
    if not found:
        raise MissingFileError("no files: give a path, a glob, a folder or a list of these")
    return list(found)


#: Real paths of what is no input, even where a source names the folder that it lies in.
_LEFT_OUT: ContextVar[frozenset[str]] = ContextVar("aggarray_left_out", default=frozenset())


@contextmanager
def leaving_out(paths: Iterable[str]) -> Iterator[None]:
    """Pass over some files in sources for the length of a block: what is made beside the data is none of them."""
    token = _LEFT_OUT.set(frozenset(map(os.path.realpath, paths)))
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def _is_wanted(path: str) -> bool:
    out = _LEFT_OUT.get()
    if not out or is_remote(path):
        return True
    real = os.path.realpath(path)
    return real not in out and not any(
        real.startswith(f"{one}.part/") for one in out if f"{os.path.basename(one)}.part" in real
    )


def listed(source: Source) -> list[Any]:
    """Return the items of a source, to be gone through more than once; AggregationError for what is no path."""
    return list(_sources(source))


def named_files(items: Sequence[Any]) -> list[str]:
    """Return the absolute paths of the files that a source names one by one, rather than by a folder or a pattern."""
    return [absolute(p) for p in map(given_path, items) if _is_named(p)]


def _is_named(path: str) -> bool:
    try:
        return not (is_remote(path) and has_magic(path)) and (is_file(path) or is_store(path))
    except AggarrayError:
        return False  # a scan says what is wrong with it


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
    if is_remote(path):
        yield from expand(path)
    elif not os.path.lexists(path) and glob.has_magic(path):
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
        if unsupported_folder(here, folders, files) is not None:
            # A scan says what it is: the files in it are none of their own.
            yield here
            folders.clear()
            continue
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


def scan_files(paths: Sequence[str], processes: int | None = None, progress: Progress | None = None) -> list[Scanned]:
    """Scan every file, in the order given.

    ``processes``: how many work on it, this one included; None: one for few files and under MPI, else as many as cores.
    """
    with Scan(len(paths), processes, progress) as running:
        return running.whole(paths)


class Scan:
    """A scan of many files in one or several rounds; a context manager that ends its helpers.

    ``total``: how many files there are, for the progress, which is called in this thread.
    """

    def __init__(self, total: int, processes: int | None = None, progress: Progress | None = None) -> None:
        self._crew, self._arrays = WorkerPool(processes), ArrayInterner()
        self._total, self._done, self._progress = total, 0, progress

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *error: Any) -> None:
        self._crew.__exit__(*error)

    def whole(self, paths: Sequence[str]) -> list[Scanned]:
        """Scan files whole, in the order given; a file that cannot be read gives its error."""
        found = self.run([(path, None) for path in paths])
        return [(p, r) for p, r in zip(paths, found, strict=True) if isinstance(r, Structure | AggarrayError)]

    def run(self, tasks: Sequence[Task], again: bool = False) -> list[Result]:
        """Look at files, as far as is wanted of each, in the order given; ``again``: they were counted before."""
        found = self._crew.run(tasks) if again else self._crew.run(tasks, self._report)
        return [self._arrays.shared(r) if isinstance(r, Structure) else r for r in found]

    def _report(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total, "scanning")


class ArrayInterner:
    """Makes equal coordinates of different files one array in memory."""

    def __init__(self) -> None:
        self._sharer = Interner()
        self._known: dict[int, tuple[Variable, Variable]] = {}

    def shared(self, structure: Structure) -> Structure:
        """Return a structure with the arrays of earlier ones where they are equal."""
        return replace(structure, variables=tuple(map(self._shared, structure.variables)))

    def _shared(self, variable: Variable) -> Variable:
        if variable.values is None:
            return variable
        # What a helper sends twice is one object already; it is held, so that no other gets its number.
        known = self._known.get(id(variable))
        if known is None:
            values = self._sharer.array(variable.values)
            same = variable if values is variable.values else replace(variable, values=values)
            known = self._known[id(variable)] = (variable, same)
        return known[1]


def sharing() -> Callable[[Structure], Structure]:
    """Return a function through which structures go, so that equal coordinates of different files are held in memory once."""
    return ArrayInterner().shared


def skipped_file(path: str, error: AggarrayError) -> str:
    """Return why a file was passed over, without repeating its path."""
    text = str(error)
    return text.removeprefix(f"{path}: ") if isinstance(error, FormatError) else text
