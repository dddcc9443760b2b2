"""Extraction of arrays to a Zarr store or a netCDF-4 file.

Memory use is bounded, and a stopped run can be resumed: chunks are written next to the result, which appears only when it is
complete. Two runs over the same pieces of the same files write the same bytes, apart from the date in `history`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from importlib import metadata
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple, dataclass, fields, replace
from aggarray.errors import AggregationError
from aggarray.export.extract import zarr_store
from aggarray.export.extract.earlier import EarlierExtract
from aggarray.export.extract.lineage import add_lineage
from aggarray.export.extract.pieces import Pieces
from aggarray.export.extract.reductions import Reduction
from aggarray.export.extract.target import ATTRIBUTE, ExtractTarget, check_not_source, stored_fingerprint
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.verification import resolve_array
from aggarray.output import netcdf_file
from aggarray.output.chunk_sizes import ChunkSizes, check_shards, set_chunk_sizes
from aggarray.output.compression import Compression, parse_compression
from aggarray.output.layout import ExtractLayout, Variable, lay_out
from aggarray.partition.matrix import References
from aggarray.scan.progress import Progress, checked_progress
from aggarray.scan.roles import SOURCE_FILE
from aggarray.storage.files import local_path, stat_file, state_path
from aggarray.storage.locks import unlock
from aggarray.storage.urls import is_remote

#: Libraries whose versions may change the bytes.
_LIBRARIES = ("aggarray", "numpy", "deflate", "numcodecs", "netCDF4", "h5py")
#: Former names of renamed classes, which fingerprints keep: earlier extracts stay up to date.
_TAGS = {"ExtractLayout": "Layout", "FileSignature": "Assumed", "VariableSignature": "Fact", "StorageOptions": "Storage"}
#: Fields of variables that fingerprints have only if they are given: earlier extracts stay up to date.
_OPTIONAL = ("shards", "piece")
_KINDS = {".zarr": zarr_store.KINDS, ".nc": netcdf_file.KINDS, ".nc4": netcdf_file.KINDS}


@dataclass(frozen=True, slots=True)
class Extracted:
    """Result of `extract`.

    ``variables``: names, coordinates included; ``nbytes``: bytes of all values; ``resumed``: bytes that an earlier run had
    written; ``unchanged``: the result was up to date, nothing was written; ``appended``: positions that were appended to an
    earlier extract along ``dimension``.
    """

    path: str
    variables: tuple[str, ...]
    nbytes: int
    resumed: int = 0
    unchanged: bool = False
    appended: int = 0
    dimension: str | None = None

    def __setstate__(self, state: list[Any]) -> None:
        # Earlier releases wrote no appended positions.
        for field, value in zip(fields(self), [*state, 0, None], strict=False):
            object.__setattr__(self, field.name, value)


class ExtractOptions(NamedTuple):
    """How values are stored; see `extract`."""

    compress: str | None = None
    chunks: ChunkSizes | None = None
    shards: ChunkSizes | None = None
    append: bool = False
    reduction: Reduction | None = None


class _Plan(NamedTuple):
    """What is written, and where."""

    arrays: list[MasterArray]
    layout: ExtractLayout
    target: ExtractTarget
    compression: Compression
    options: ExtractOptions


def extract(
    arrays: MasterArray | Iterable[MasterArray],
    path: str | os.PathLike[str],
    *,
    exists: str = "raise",
    compress: str | None = None,
    chunks: ChunkSizes | None = None,
    shards: ChunkSizes | None = None,
    append: bool = False,
    reduction: Reduction | None = None,
    aggregation: Aggregation | None = None,
    command: str | None = None,
    progress: bool | Progress | None = None,
) -> Extracted:
    """Write arrays with their coordinates to a Zarr store or netCDF-4 file.

    ``path`` ends with .zarr, .nc or .nc4. Coordinates that arrays share are written once; attributes, units, calendars and
    missing values are kept. ``reduction``: what is computed of the arrays and written in their place.
    ``exists``: what happens to an existing result, unless it holds the same pieces of the same files, unchanged since: "raise",
    or "update": overwrite it if `extract` made it. "overwrite": overwrite any extract, netCDF file or Zarr store.
    ``compress``: "zlib:4" or another level, "zstd:3", "blosc:5", "blosc_lz4:5", "none". None: "zlib:4" in netCDF and "blosc:5"
    in Zarr; arrays of less than 64 kB are then stored uncompressed.
    ``chunks``: sizes by dimension, -1: all of it; None: chosen to fit the files. ``shards``: sizes of the shards of a Zarr
    store, multiples of the chunks; a shard has one chunk along other dimensions. ``append``: True to keep the result of an
    earlier call, its chunks and compression, and to write what follows it along one dimension.
    ``aggregation``: that of the arrays: the attributes of its files need not be read again. ``command``: the text of the new
    line of the attribute ``history``; None: the names and shapes of the arrays.
    ``progress``: True for a bar, or a callable (done, total, what) that receives bytes.

    The global attribute ``history`` is that of the files, after a line about this extract (of the first file, if they differ);
    ``tracking_id`` has a line for each file that was read, up to 16 kB. The group ``source_files`` lists the ``uri`` and
    ``tracking_id`` of all. The environment variable SOURCE_DATE_EPOCH (seconds since 1970) replaces the date.

    The chunks are written to ``path`` + ".part" until the result is complete. A new run after a stop resumes there, unless
    the arrays, their files or these options have changed. Raises AggregationError for arrays, paths or compressions that
    cannot be written, and for a result that the arrays do not continue; SelectionError for invalid chunks.
    """
    plan = _make_plan(arrays, local_path(path), exists, ExtractOptions(compress, chunks, shards, append, reduction))
    known = arrays if aggregation is None and isinstance(arrays, Aggregation) else aggregation
    return _carry_out(plan, exists, tuple if known is None else known._provenance.structures, command, progress)


def is_extracted(
    arrays: MasterArray | Iterable[MasterArray],
    path: str | os.PathLike[str],
    *,
    compress: str | None = None,
    chunks: ChunkSizes | None = None,
    shards: ChunkSizes | None = None,
    append: bool = False,
    reduction: Reduction | None = None,
) -> bool:
    """Return whether `extract` wrote these arrays there and nothing changed."""
    plan = _make_plan(arrays, local_path(path), "update", ExtractOptions(compress, chunks, shards, append, reduction))
    if reduction is not None:
        reduction.check(plan.arrays)
    return stored_fingerprint(plan.target.path) == plan.target.fingerprint


def _make_plan(arrays: MasterArray | Iterable[MasterArray], path: str, exists: Any, options: ExtractOptions) -> _Plan:
    if exists not in ("raise", "overwrite", "update"):
        raise AggregationError(f"exists={exists!r} is invalid", hint="give 'raise', 'overwrite' or 'update'")
    path = os.path.abspath(path)
    compress, _, shards, append, reduction = options
    compression = check_format(path, compress, shards)
    if append and exists == "overwrite":
        raise AggregationError("append=True keeps what exists", path=path, hint="leave out exists='overwrite'")
    if append and reduction is not None:
        raise AggregationError("a reduction cannot be appended", path=path, hint="leave out append=True")
    items = [arrays] if isinstance(arrays, MasterArray) else list(arrays)
    wrong = [type(a).__name__ for a in items if not isinstance(a, MasterArray)]
    if wrong or not items:
        what = f"{wrong[0] if wrong else 'no arrays'} to write"
        raise AggregationError(what, path=path, hint="give arrays of an aggregation")
    resolved = [resolve_array(a) for a in items]
    suffix = os.path.splitext(path)[1].lower()
    if reduction is None:
        layout = _layout(resolved, path, options)
    else:
        # The fingerprint covers what the results depend on.
        layout = lay_out(resolved, zarr_store.KINDS, path)
        reduction.check_names(resolved)
    check_not_source(path, {str(uri) for v in layout.variables for uri in _used(v) if v.source._known is None})
    mark = _fingerprint(layout, suffix, None if compress is None else compression, reduction)
    _complete(layout, suffix, mark)
    return _Plan(resolved, layout, ExtractTarget(path, mark), compression, options)


def _layout(arrays: list[MasterArray], path: str, options: ExtractOptions) -> ExtractLayout:
    """Return the layout of what is written."""
    compress, chunks, shards, append, reduction = options
    kinds = _KINDS[os.path.splitext(path)[1].lower()]
    # Small arrays are chunked and compressed too if the caller asks for one of these, or to append to them.
    whole = 0 if compress is not None or chunks or shards or append else None
    layout = lay_out(arrays, kinds, path, whole, dimensions_first=reduction is not None)
    set_chunk_sizes(layout, chunks, shards)
    return layout


def _complete(layout: ExtractLayout, suffix: str, fingerprint: str) -> None:
    """Add what the fingerprint does not cover."""
    layout.attributes[ATTRIBUTE] = fingerprint
    if suffix == ".zarr":
        zarr_store.set_pieces(layout)


def check_format(path: str, compress: str | None, shards: ChunkSizes | None) -> Compression:
    """Return the compression; AggregationError for what a format lacks."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _KINDS:
        raise AggregationError(f"unknown suffix {suffix!r}", path=path, hint="give a name that ends with .zarr or .nc")
    check_shards(shards, suffix)
    compression = parse_compression(compress, suffix)
    if suffix != ".zarr":
        netcdf_file.check_compression(compression, path)
    return compression


def _carry_out(
    plan: _Plan,
    exists: str,
    structures: Callable[[], Iterable[Structure]],
    command: str | None,
    progress: bool | Progress | None,
) -> Extracted:
    """Write the result unless it is up to date; see `add_lineage`."""
    target, reduction = plan.target, plan.options.reduction
    done = _described(plan.layout, target.path)
    # promise: extract-rerun-sweeps
    swept = target.swept()
    if exists != "overwrite" and stored_fingerprint(target.path) == target.fingerprint:
        unlock(target.path)
        return replace(done if reduction is None else _stored(target.path), unchanged=True)
    if swept:
        done = done if reduction is None else _stored(target.path)
        return replace(done, resumed=done.nbytes)
    if plan.options.append and os.path.lexists(target.path):
        return _append(plan, done, structures, command, progress)
    target.check(exists)
    if reduction is not None:
        reduction.check(plan.arrays)
        results = reduction.of(plan.arrays, checked_progress(progress, "bytes"))
        plan = plan._replace(layout=_layout(results, target.path, plan.options))
        _complete(plan.layout, os.path.splitext(target.path)[1].lower(), target.fingerprint)
        done = _described(plan.layout, target.path)
    add_lineage(plan.layout, plan.arrays, structures, command)
    return replace(done, resumed=_write(plan, progress))


def _described(layout: ExtractLayout, path: str) -> Extracted:
    variables = layout.variables
    return Extracted(path, tuple(v.name for v in variables), sum(v.source.nbytes for v in variables))


def _stored(path: str) -> Extracted:
    """Return the variables that an existing result holds."""
    variables = [v for v in scan(path).variables if v.dimensions != (SOURCE_FILE,)]
    sizes = (prod(v.shape) * v.dtype.itemsize for v in variables)
    return Extracted(path, tuple(v.name for v in variables), sum(sizes))


def _append(
    plan: _Plan,
    done: Extracted,
    structures: Callable[[], Iterable[Structure]],
    command: str | None,
    progress: bool | Progress | None,
) -> Extracted:
    """Write what follows the existing extract."""
    layout, target, options = plan.layout, plan.target, plan.options
    target.check("update")
    earlier = EarlierExtract(target.path)
    data = [v.name for v in layout.variables if any(v.source is array for array in plan.arrays)]
    sizes = {"chunks": options.chunks or {}, "shards": options.shards or {}}
    given = None if options.compress is None else plan.compression
    plan = plan._replace(compression=earlier.continue_(layout, data, given, sizes))
    dimension, size = earlier.growth
    if dimension is None:
        unlock(target.path)
        return replace(done, unchanged=True)
    target.append_to(earlier.digest)
    new = [a.lazy[tuple(slice(size if d == dimension else 0, None) for d in a.dimensions)] for a in plan.arrays]
    add_lineage(layout, new, structures, command, earlier)
    try:
        resumed = _write(plan, progress, earlier)
    finally:
        earlier.close()
    return replace(done, resumed=resumed, appended=layout.dimensions[dimension] - size, dimension=dimension)


def _write(plan: _Plan, progress: bool | Progress | None, earlier: EarlierExtract | None = None) -> int:
    """Write the result; return the bytes that an earlier run had written."""
    layout, target, compression = plan.layout, plan.target, plan.compression
    report, resumed, written = checked_progress(progress, "bytes"), 0, 0

    def advance(nbytes: int, existed: bool) -> None:
        nonlocal resumed, written
        written, resumed = written + nbytes, resumed + nbytes * existed
        if report is not None:
            report(written, total, "extracting")

    is_zarr = target.path.lower().endswith(".zarr")
    with target.held() as lock:
        if earlier is not None and stored_fingerprint(target.path) != earlier.fingerprint:
            raise AggregationError("was modified by another process meanwhile", path=target.path, hint="run it again")
        encode = partial(zarr_store.encode if is_zarr else netcdf_file.encode, compression=compression)
        pieces = Pieces(target.store, target.spare, encode, earlier)
        total = pieces.total(layout)
        pieces.write(layout, advance)
        if not is_zarr:
            pieces.assemble(layout, target.file, compression)
            target.finish(target.file, lock)
        elif earlier is None:
            pieces.write_small(layout)
            zarr_store.write_documents(layout, target.store, target.spare, compression)
            target.finish(target.store, lock)
        else:
            pieces.write_small(layout)
            target.finish_in_place(partial(_extend_store, plan), lock)
    return resumed


def _extend_store(plan: _Plan) -> None:
    """Move the chunks into the existing store, then replace its metadata."""
    target = plan.target
    # promise: append-chunks-first
    zarr_store.place_chunks(target.store, target.path)
    zarr_store.write_documents(plan.layout, target.path, target.spare, plan.compression)


def _fingerprint(layout: ExtractLayout, kind: str, compression: Compression | None, reduction: Reduction | None) -> str:
    """Return 32 characters that change if the result would change.

    ``compression``, ``reduction``: None if not given: earlier extracts stay up to date.
    """
    digest = hashlib.blake2b(digest_size=16)
    libraries = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    options = [option for option in (compression, reduction) if option is not None]
    for part in _parts([kind, libraries, layout, *options]):
        digest.update(len(part).to_bytes(8, "little") + part)
    states: dict[str, Any] = {}
    for variable in layout.variables:
        if variable.source._known is None:
            with variable.source._access.reach():
                states |= {str(uri): _state(str(uri)) for uri in _used(variable) if str(uri) not in states}
    for uri, state in sorted(states.items()):
        digest.update(f"{uri} {state}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _parts(item: Any) -> Iterator[bytes]:
    """Yield the content of an item recursively, as bytes."""
    if isinstance(item, np.ndarray):
        yield f"{item.dtype.str} {item.shape}".encode()
        yield str(item.tolist()).encode() if item.dtype.kind in "TO" else np.ascontiguousarray(item).tobytes()
    elif isinstance(item, MasterArray):
        # Its coordinates are variables of the layout.
        yield from _parts([item.dtype.str, item.units, item.calendar, item.fill_value, item._access])
        yield from _parts(item._known or item._matrix.compact())
    elif isinstance(item, References):
        names = (f.name for f in fields(item) if f.name not in ("stamps", "tables", "seen", "external"))
        yield from _parts([getattr(item, name) for name in names])
    elif isinstance(item, Mapping):
        yield from _parts([[key, value] for key, value in item.items()])
    elif is_dataclass(item):
        name = type(item).__name__
        yield _TAGS.get(name, name).encode()
        # Without shards, as before there were any.
        own = [f.name for f in fields(item) if f.init]  # the others are caches
        yield from _parts([v for name in own if (v := getattr(item, name)) is not None or name not in _OPTIONAL])
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
        yield f"{len(item)}".encode()
        for element in item:
            yield from _parts(element)
    else:
        yield repr(item).encode("utf-8", "surrogatepass")


def _used(variable: Variable) -> Sequence[str]:
    return variable.source._matrix.compact().references.uris


def _state(uri: str) -> tuple[int, ...] | None:
    """Return the state of a file or local Zarr store, None if it is missing."""
    with contextlib.suppress(OSError):
        if not is_remote(uri) and os.path.isdir(uri):
            # Chunks may change while the metadata stay the same.
            states = [os.lstat(os.path.join(directory, name)) for directory, _, names in os.walk(uri) for name in names]
            return len(states), sum(s.st_size for s in states), max((s.st_mtime_ns for s in states), default=0)
        stat = stat_file(state_path(uri))
        # The inode of a remote file is the server's identifier of its content.
        return stat.size, stat.mtime_ns, stat.inode if is_remote(uri) else 0
    return None
