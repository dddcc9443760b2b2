"""How is a read plan carried out?

Each touched piece is fetched (from an open file or from memory), decoded, conformed and placed into the one output array.
Files are kept open in a bounded cache; pieces of different files are worked on by several threads.
"""

import atexit
import os
import stat
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.access import ANYWHERE, Access
from aggarray.conform import Masked, arrange, conform
from aggarray.errors import AggarrayError, FormatError, IndexFileError, MissingFileError, SelectionError
from aggarray.formats import checksum, open_file, telling_file
from aggarray.formats.base import Handle, Stamp, blaming, select_outer
from aggarray.options import get_options
from aggarray.plan import Along, Piece, along, pieces
from aggarray.selection import Selector
from aggarray.settle import settled, touched
from aggarray.table import Matrix, References, Step, Template
from aggarray.units import conversion


@dataclass(frozen=True, slots=True)
class Target:
    """What the values of a master array are: units, calendar and dtype, what stands for missing, how files may be read."""

    step: Step
    fill_value: Any
    access: Access = ANYWHERE


@dataclass(slots=True)
class _Lease:
    handle: Handle
    state: tuple[int, ...]
    users: int = 0


#: So many files whose time has changed, but nothing else, are remembered.
_REMEMBERED = 100_000


class OpenFiles:
    """A bounded cache of open files: the least recently used one that nobody reads is closed first.

    A file that was replaced or changed since it was opened is opened anew. Handles that are not `lasting` close with their
    last reader.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._process = os.getpid()
        self._at_exit = False
        self._same: dict[str, tuple[tuple[int, ...], Stamp]] = {}

    @contextmanager
    def use(self, path: str, stamp: Stamp | None = None) -> Iterator[Handle]:
        """Give the handle of a file for the length of a block; MissingFileError or FormatError where it does not open.

        ``stamp``: what the file was like when it was scanned; IndexFileError where it has changed.
        """
        lease = self._take(path, stamp)
        try:
            yield lease.handle
        finally:
            with self._lock:
                lease.users -= 1
                current = self._leases.get(path) is lease
                if not lease.users and not (current and lease.handle.lasting):
                    if current:
                        del self._leases[path]
                    lease.handle.close()
                self._shrink()

    def _take(self, path: str, stamp: Stamp | None) -> _Lease:
        if "://" in path:
            raise FormatError(
                "a remote file, which cannot be opened; fetch it, and open with relocate={its address: its folder}"
            )
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                # A folder does not tell that a file in it was written to.
                status = os.stat(telling_file(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            self.forget(path)
            raise MissingFileError("no such file; restore it, or open with missing='fill'") from error
        except OSError as error:
            raise FormatError(f"cannot be opened: {error.strerror or error}; check its permissions") from error
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp is not None and state[:2] != (stamp[1], stamp[0]):
            self._check(path, state, stamp)
        with self._lock:
            if self._process != os.getpid():
                # After a fork the handles belong to the parent: they are left to it, not closed.
                self._leases, self._process = OrderedDict(), os.getpid()
            lease = self._leases.pop(path, None)
            if lease is not None and lease.state == state:
                self._leases[path] = lease
                lease.users += 1
                return lease
            _close_unused(lease)
        fresh = _Lease(open_file(path), state, 1)
        with self._lock:
            if not self._at_exit:
                # Handles that close while the interpreter is taken down find their modules gone.
                atexit.register(self.close)
                self._at_exit = True
            # Another thread may have opened it at the same time: the later one is kept.
            _close_unused(self._leases.pop(path, None))
            self._leases[path] = fresh
        return fresh

    def _check(self, path: str, state: tuple[int, ...], stamp: Stamp) -> None:
        """Raise IndexFileError unless a file is what it was, but for its time: copying changes that."""
        if self._same.get(path) == (state, stamp):
            return
        told = telling_file(path)
        status = os.stat(told)
        if status.st_size != stamp[0]:
            raise IndexFileError(
                f"changed since it was scanned: {stamp[0]} bytes then, {status.st_size} now; open the files anew"
            )
        if status.st_mtime_ns != stamp[1] and checksum(told) != stamp[2]:
            raise IndexFileError("changed since it was scanned: it was written to; open the files anew")
        if len(self._same) > _REMEMBERED:
            self._same.clear()
        self._same[path] = (state, stamp)

    def forget(self, path: str) -> None:
        """Drop a file from the cache; its handle closes when the last reader lets go of it."""
        with self._lock:
            _close_unused(self._leases.pop(path, None))

    def _shrink(self) -> None:
        surplus = len(self._leases) - get_options().open_files
        for path in [p for p, lease in self._leases.items() if lease.users == 0][: max(0, surplus)]:
            self._leases.pop(path).handle.close()

    def close(self) -> None:
        """Close every file that nobody reads."""
        with self._lock:
            for path in [p for p, lease in self._leases.items() if lease.users == 0]:
                self._leases.pop(path).handle.close()


def _close_unused(lease: _Lease | None) -> None:
    if lease is not None and not lease.users:
        lease.handle.close()


_files = OpenFiles()


def close_files() -> None:
    """Close the files kept open for later reads, for instance before deleting them."""
    _files.close()


@contextmanager
def _opened(references: References, row: int, access: Access) -> Iterator[Handle]:
    """Give the open file of a sub-array, as far as it may be read and is what it was."""
    uri = str(references.uri_of(row))
    access.check(uri)
    with _files.use(uri, references.stamp_of(row)) as handle:
        if access.roots is not None:
            # Handles of other packages may not know.
            elsewhere = getattr(handle, "elsewhere", lambda variable: ())
            for path in elsewhere(references.variables[int(references.variable[row])]):
                access.check(path)
        yield handle


def fetch(matrix: Matrix, piece: Piece, access: Access) -> np.ndarray:
    """Return the stored values of a piece, dimensions as in its sub-array; errors name file and variable."""
    references = matrix.references
    uri = references.uri_of(piece.ref)
    code = references.variable[piece.ref]
    if uri is None:
        return _pick(references.memory[code], piece.selection)
    variable = references.variables[code]
    with blaming(uri, variable), _opened(references, piece.ref, access) as handle:
        found = select_outer(lambda box: handle.read(variable, box), piece.selection)
    expected = tuple(len(range(s.start, s.stop, s.step or 1)) if isinstance(s, slice) else s.size for s in piece.selection)
    stored = references.template_of(piece.ref).encoding.stored
    if found.shape != expected or found.dtype != stored:
        text = f"{found.dtype} of shape {found.shape} where {stored} of shape {expected} should be"
        raise FormatError(f"{uri}, variable {variable!r}: {text}; open the files anew")
    return found


def _pick(array: np.ndarray, selection: Sequence[slice | np.ndarray]) -> np.ndarray:
    chosen = array[tuple(s if isinstance(s, slice) else slice(None) for s in selection)]
    for axis, indices in enumerate(selection):
        if not isinstance(indices, slice):
            chosen = chosen.take(indices, axis=axis)
    return chosen


def _block(matrix: Matrix, piece: Piece, target: Target) -> Masked | None:
    """Return values and mask of a piece in the master's dimensions, dtype and units; None where it is missing."""
    if piece.ref < 0:
        return None
    template = matrix.references.template_of(piece.ref)
    try:
        raw = fetch(matrix, piece, target.access)
    except MissingFileError:
        if target.access.missing == "fill":
            return None
        raise
    values, mask = conform(*template.encoding.decode(raw), template, target.step)

    def laid(array: np.ndarray) -> np.ndarray:
        block = arrange(array, template.dimensions, piece.flip, matrix.dimensions)
        for axis, take in enumerate(piece.take):
            block = block if take is None else block.take(take, axis=axis)
        return block

    return laid(values), None if mask is None else laid(mask)


def _place(out: np.ndarray, mask_out: np.ndarray | None, piece: Piece, block: Masked | None, fill: Any) -> None:
    """Write a block where its piece goes, missing values filled in, and its mask."""
    where: Any = piece.out
    if not all(isinstance(w, slice) for w in where):
        where = np.ix_(*(np.arange(w.start, w.stop) if isinstance(w, slice) else w for w in where))
    if block is None:
        out[where] = fill
        if mask_out is not None:
            mask_out[where] = True
        return
    values, mask = block
    out[where] = values if mask is None else np.where(mask, np.asarray(fill, out.dtype), values)
    if mask_out is not None and mask is not None:
        mask_out[where] = mask


def _by_file(matrix: Matrix, rows: Sequence[Along]) -> list[list[Piece]]:
    """Group the pieces so that each file is read by one thread at a time, once it is open."""
    groups: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(matrix, rows):
        groups[int(matrix.references.uri[piece.ref]) if piece.ref >= 0 else -1].append(piece)
    return list(groups.values())


def read(
    matrix: Matrix,
    target: Target,
    selectors: Sequence[Selector],
    out: np.ndarray | None = None,
    masked: bool = False,
    threads: int | None = None,
) -> Masked:
    """Read a selection of a matrix: values of the target's dtype, fresh and writable or in ``out``, and the mask if wanted.

    ``selectors``: one per dimension, as `selection.normalise` gives them. Raises FormatError, MissingFileError or
    UnitsError naming file and variable; SelectionError where ``out`` does not fit.
    """
    rows = [along(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    matrix = _settled(matrix, rows, target)
    shape = tuple(r.size for r in rows if not r.dropped)
    result = output(out, shape, target.step.dtype)
    mask = np.zeros(shape, bool) if masked else None
    aim: Any = tuple(np.newaxis if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    view, mask_view = result[aim or ...], None if mask is None else mask[aim or ...]

    def work(group: list[Piece]) -> None:
        with _held(matrix, group, target.access):
            for piece in group:
                block = _named(matrix, piece, lambda p: _block(matrix, p, target))
                _place(view, mask_view, piece, block, target.fill_value)

    if result.size:
        _run(work, _by_file(matrix, rows), get_options().threads if threads is None else threads)
    return result, mask


def _settled(matrix: Matrix, rows: Sequence[Along], target: Target) -> Matrix:
    """Look at the files of sub-arrays that are about to be read and that so far only an index has told of."""
    if not any(t.declared for t in matrix.references.templates):
        return matrix
    return settled(matrix, touched(matrix, rows), target.step, target.access)


@contextmanager
def _held(matrix: Matrix, group: Sequence[Piece], access: Access) -> Iterator[None]:
    """Keep the file of several pieces open from the first to the last; whatever is wrong with it, the pieces will say."""
    references, first = matrix.references, group[0].ref
    with ExitStack() as stack:
        if len(group) > 1 and first >= 0 and references.uri[first] >= 0:
            with suppress(AggarrayError):
                stack.enter_context(_opened(references, first, access))
        yield


def _named(matrix: Matrix, piece: Piece, work: Callable[[Piece], Any]) -> Any:
    """Run ``work`` and let errors name the file and the variable that they met, unless they do."""
    try:
        return work(piece)
    except AggarrayError as error:
        references = matrix.references
        uri = references.uri_of(piece.ref)
        if uri is None or str(error).startswith(f"{uri}, variable"):
            raise
        variable = references.variables[references.variable[piece.ref]]
        text = str(error).removeprefix(f"{uri}: ")
        raise type(error)(f"{uri}, variable {variable!r}: {text}") from error


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return the array to fill: a new one, or ``out``; SelectionError where that does not fit."""
    if out is None:
        try:
            return np.empty(shape, dtype)
        except (MemoryError, ValueError) as error:
            size = " x ".join(map(str, shape))
            raise SelectionError(f"{size} values of {dtype} do not fit into memory: read a part of them") from error
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise SelectionError(f"out is {found}{_read_only(out)}: give a writable array of {dtype} and shape {shape}")
    return out


def _read_only(out: Any) -> str:
    return ", read-only" if isinstance(out, np.ndarray) and not out.flags.writeable else ""


def _run(work: Callable[[list[Piece]], None], groups: list[list[Piece]], threads: int) -> None:
    if threads < 1:
        raise SelectionError(f"threads={threads}: give a whole number of at least 1, or None for the option")
    if threads == 1 or len(groups) <= 1:
        for group in groups:
            work(group)
        return
    pool = ThreadPoolExecutor(min(threads, len(groups)))
    try:
        for future in [pool.submit(work, group) for group in groups]:
            future.result()
    finally:
        # After an error nobody needs the rest.
        pool.shutdown(cancel_futures=True)


def view(matrix: Matrix, target: Target, selectors: Sequence[Selector], masked: bool = False) -> np.ndarray | str:
    """Return a read-only view of a selection that one piece serves as it is, without a copy; else say why there is none.

    The piece lies in memory or, contiguous and uncompressed, in a file that is then memory-mapped: the view has the
    file's byte order, and the process is killed if another one truncates the file. Values that mean missing are no
    obstacle where they are what the master has for them, unless a mask is wanted too (``masked``).
    """
    rows = [along(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    matrix = _settled(matrix, rows, target)
    found = [piece for group in _by_file(matrix, rows) for piece in group]
    if len(found) != 1 or found[0].ref < 0:
        return f"{len(found)} partitions serve it, not one" if len(found) != 1 else "its partition is missing"
    piece = found[0]
    if any(not isinstance(s, slice) for s in (*piece.selection, *piece.out)):
        return "its indices are not evenly spaced"
    template = matrix.references.template_of(piece.ref)
    if not _as_stored(template, target.step):
        return "its values must be converted"
    whole = _named(matrix, piece, lambda p: _whole(matrix, p, target.access))
    if whole is None:
        return "it is not stored contiguous and uncompressed"
    part = whole[piece.selection]
    if template.encoding.may_miss:
        mask = template.encoding.decode(part)[1]
        if mask is not None and (masked or not _all_fill(part[mask], target.fill_value)):
            return "it has missing values, which must be filled in"
    laid = arrange(part, template.dimensions, piece.flip, matrix.dimensions)
    chosen = tuple(0 if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    laid = laid[(*chosen, ...)].view()
    laid.flags.writeable = False
    return laid


def _all_fill(values: np.ndarray, fill: Any) -> bool:
    """Tell whether stored values that mean missing are already what stands for it."""
    if values.dtype.kind in "fcmM":
        return bool(np.isnan(values).all()) and bool(np.isnan(fill))
    return bool((values == fill).all())


def _as_stored(template: Template, step: Step) -> bool:
    """Tell whether stored values are those of the master but for byte order and missing values."""
    encoding = template.encoding
    plain = not template.steps and not encoding.packed and encoding.viewed == encoding.stored == step.dtype
    return plain and conversion(template.units, template.calendar, step.units, step.calendar).identity


def _whole(matrix: Matrix, piece: Piece, access: Access) -> np.ndarray | None:
    references, row = matrix.references, piece.ref
    if references.uri[row] < 0:
        return references.memory[int(references.variable[row])]
    with _opened(references, row, access) as handle:
        mapped: np.ndarray | None = handle.mapped(references.variables[references.variable[row]])
    return mapped
