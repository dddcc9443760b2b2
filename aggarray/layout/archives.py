"""Facts of the files and arrays of an aggregation, collected from headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aggarray.aggregate.report import Problem
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import flat_of
from aggarray.errors import AggarrayError, MissingFileError, counted
from aggarray.formats.base import Variable
from aggarray.formats.flattened import stored_name
from aggarray.formats.partial_scan import FileLayout, LayoutRequest
from aggarray.layout.base import ArrayLayout, Member
from aggarray.partition.file_names import file_codes, files_at
from aggarray.partition.matrix import Matrix
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.scan.progress import Progress


def files_of(arrays: Sequence[MasterArray]) -> dict[str, Access]:
    """Return the files that arrays use, in order, with the access to each."""
    files: dict[str, Access] = {}
    for array in arrays:
        matrix = flat_of(array)._matrix
        files |= {uri: array._access for uri in files_at(matrix.references.uris, file_codes(matrix)) if uri not in files}
    return files


def scan_layouts(files: Mapping[str, Access], progress: Progress | None = None) -> tuple[dict[str, FileLayout], list[Problem]]:
    """Return the layout of each file, and the problems of those without one."""
    from aggarray.scan.files import start_pool
    from aggarray.scan.progress import reporting
    from aggarray.scan.workers import keep_result

    allowed: list[str] = []
    errors: dict[str, AggarrayError] = {}
    for uri, access in files.items():
        try:
            access.check(uri)
            allowed.append(uri)
        except AggarrayError as error:
            errors[uri] = error
    with start_pool() as pool:
        results = pool.run([(uri, LayoutRequest()) for uri in allowed], reporting(progress, len(allowed), keep_result))
    found = dict(zip(allowed, results, strict=True))
    layouts = {uri: result for uri, result in found.items() if isinstance(result, FileLayout)}
    errors |= {uri: result for uri, result in found.items() if isinstance(result, AggarrayError)}
    return layouts, list(_unreadable(errors))


def _unreadable(errors: Mapping[str, AggarrayError]) -> Iterator[Problem]:
    """Yield one problem for all files with the same error."""
    equal: dict[tuple[str, str], list[str]] = {}
    for uri, error in errors.items():
        kind = "missing" if isinstance(error, MissingFileError) else "unreadable"
        equal.setdefault((kind, error.reason), []).append(uri)
    for (kind, _), files in equal.items():
        more = f" (and {counted(len(files) - 1, 'other file')})" if len(files) > 1 else ""
        yield Problem(kind, files[0], f"{errors[files[0]]}{more}", tuple(files))


def array_layouts(arrays: Sequence[MasterArray], layouts: Mapping[str, FileLayout]) -> Iterator[ArrayLayout]:
    """Yield the layout of each array that files hold."""
    variables = {uri: {v.name: v for v in layout.structure.variables} for uri, layout in layouts.items()}
    for number, array in enumerate(arrays):
        flat = flat_of(array)
        matrix = flat._matrix
        members = tuple(_members(matrix, layouts, variables))
        if members:
            sizes = dict(zip(flat.dimensions, flat.shape, strict=True))
            joined = tuple(name for name, edges in zip(matrix.dimensions, matrix.edges, strict=True) if len(edges) > 2)
            yield ArrayLayout(number, array.name or "", sizes, flat.dtype.itemsize, joined, members)


def _members(
    matrix: Matrix, layouts: Mapping[str, FileLayout], variables: Mapping[str, Mapping[str, Variable]]
) -> Iterator[Member]:
    references = matrix.references
    refs = matrix.refs.reshape(matrix.cells)
    rows, first = np.unique(matrix.refs.ravel()[::-1], return_index=True)
    # The last cell of each file: where the file ends.
    last = np.unravel_index(refs.size - 1 - first, matrix.cells) if refs.size else ()
    for number, row in enumerate(rows.tolist()):
        uri = references.uri_of(row) if row >= 0 else None
        name = stored_name(references.variables[int(references.variable[row])]) if uri is not None else ""
        if uri is None or uri not in layouts or name not in layouts[uri].variables or name not in variables[uri]:
            continue
        stops = {
            dimension: int(edges[cell[number] + 1])
            for dimension, edges, cell in zip(matrix.dimensions, matrix.edges, last, strict=True)
        }
        dimensions = references.template_of(row).dimensions
        yield Member(layouts[uri], variables[uri][name], layouts[uri].variables[name], dimensions, stops)
