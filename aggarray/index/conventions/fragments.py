"""How does an orthogonal array of fragments, held in netCDF variables, become a matrix (CF section 2.8, CFA-0.6.2)?

A ``map`` gives the sizes of the fragments along each dimension, ``uris`` and ``identifiers`` say where each one is, or
``unique_values`` hold the one value of each. Everything is done in columns: no Python object is made per fragment.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from aggarray.cf.encoding import Encoding, default_fill
from aggarray.formats.base import Variable
from aggarray.index.conventions.foreign import ForeignArrays, ForeignFile, ordinary, shown, units_of, unresolved_template
from aggarray.partition.grid import MAX_CELLS
from aggarray.partition.matrix import Matrix, Parts, References, Step, Template

#: A dimension is not larger than this.
MAX_SIZE = 2**62

MARKS = ("aggregated_data",)

#: Terms of CFA-0.6.2 and of files before it that CF-1.13 does not have, lower-cased, and those that only CF-1.13 has.
LEGACY = frozenset(("location", "file", "address", "format", "shape", "value"))
CURRENT = frozenset(("map", "uris", "identifiers", "unique_values"))

_OWN = ("aggregated_", "cfa_")


@dataclass(frozen=True, slots=True)
class Terms:
    """Which variables hold what, in the words of CF-1.13; ``loose``: whole fragments and identifiers may be missing, and a
    trailing dimension of ``uris`` lists copies. ``others``: variables that only serve the aggregation, too.
    """

    map: Variable
    uris: Variable | None = None
    identifiers: Variable | None = None
    unique_values: Variable | None = None
    loose: bool = False
    others: tuple[Variable, ...] = ()

    def served(self) -> Iterator[str]:
        """Yield the names of all these variables."""
        for variable in (self.map, self.uris, self.identifiers, self.unique_values, *self.others):
            if variable is not None:
                yield variable.name


@dataclass(frozen=True, slots=True, eq=False)
class _FragmentLayout:
    """An aggregation variable, and its fragments' sizes per dimension."""

    variable: Variable
    dimensions: tuple[str, ...]
    sizes: tuple[np.ndarray, ...]
    decoding: Encoding
    steps: tuple[Step, ...]

    @property
    def cells(self) -> tuple[int, ...]:
        return tuple(len(s) for s in self.sizes)

    def matrix(self, references: References, refs: np.ndarray, parts: Parts | None = None) -> Matrix:
        """Return the matrix of these fragments."""
        edges = tuple(np.concatenate([[0], np.cumsum(s)]).astype(np.int64) for s in self.sizes)
        return Matrix(self.dimensions, (True,) * len(edges), edges, references, refs, parts or Parts())


def is_legacy(variable: Variable) -> bool:
    """Tell whether an aggregation variable is written in the words of CFA-0.6.2."""
    written = variable.attrs.get("aggregated_data")
    keys = {word[:-1].lower() for word in written.split() if word.endswith(":")} if isinstance(written, str) else set()
    return bool(keys & LEGACY) and not keys & CURRENT


def parsed_terms(source: ForeignFile, variable: Variable) -> dict[str, str]:
    """Return the ``term: variable`` pairs of ``aggregated_data``; IndexFileError where it is not made of these."""
    written = variable.attrs.get("aggregated_data")
    found = written.split() if isinstance(written, str) else []
    keys, names = found[::2], found[1::2]
    fits = len(keys) == len(names) and all(k.endswith(":") and len(k) > 1 for k in keys)
    if not found or not fits or any(n.endswith(":") for n in names) or len(set(keys)) < len(keys):
        raise source.fault(variable, f"aggregated_data {shown(written)}: write 'term: variable' pairs, each term once")
    return {k[:-1]: n for k, n in zip(keys, names, strict=True)}


def term_variable(source: ForeignFile, variable: Variable, term: str, name: str) -> Variable:
    """Return the variable that a term names; IndexFileError where there is none, or it is an aggregation itself."""
    found = source.find(name, variable)
    if found is None:
        reason = dict(source.structure.skipped).get(name, "which the file does not have")
        raise source.fault(variable, f"aggregated_data: {term} is variable {shown(name)}, {reason}")
    if any(mark in found.attrs for mark in MARKS):
        raise source.fault(variable, f"aggregated_data: {term} is {shown(name)}, an aggregation variable itself")
    return found


def foreign(source: ForeignFile, found: dict[str, tuple[Variable, Terms]]) -> ForeignArrays:
    """Return the aggregation variables of a file, each with the variables that hold its fragments, as read."""
    made, matrices = {}, {}
    dropped: set[str] = set()
    for name, (variable, terms) in found.items():
        layout = _layout(source, variable, terms.map)
        matrices[name] = _matrix(source, layout, terms)
        made[name] = ordinary(variable, layout.dimensions, matrices[name].shape, _OWN)
        dropped.update(terms.served())
    return ForeignArrays(source.rewritten(made, dropped), matrices)


def _layout(source: ForeignFile, variable: Variable, map_variable: Variable) -> _FragmentLayout:
    names, dimensions = source.dimensions(variable, "aggregated_dimensions")
    sizes = _sizes(source, variable, map_variable, len(names))
    for name, found in zip(names, sizes, strict=True):
        size, total = source.dimension(name, variable), int(found.sum())
        if size is not None and total != size:
            raise source.fault(
                variable, f"the fragments along {name!r} ({map_variable.name!r}) are {total} long, the dimension {size}"
            )
    if prod(len(s) for s in sizes) > MAX_CELLS:
        counts = " x ".join(str(len(s)) for s in sizes)
        raise source.fault(variable, f"{counts} fragments are more than {MAX_CELLS}: divide it into several variables")
    return _FragmentLayout(variable, dimensions, sizes, *source.master(variable))


def _sizes(source: ForeignFile, variable: Variable, term: Variable, rank: int) -> tuple[np.ndarray, ...]:
    """Return the sizes of the fragments along each dimension."""
    if term.dtype.kind not in "iuf":
        raise source.fault(variable, f"{term.name!r} is of {term.dtype}: sizes of fragments are whole numbers")
    values, mask = source.read(variable, term)
    shape = (1, values.size) if rank <= 1 and values.ndim <= 1 else values.shape
    if len(shape) != 2 or shape[0] != max(rank, 1):
        raise source.fault(variable, f"{term.name!r} has shape {term.shape}: give a row of sizes for each of {rank} dimensions")
    values = values.reshape(shape)
    # Where nothing says what padding is, it is the fill value that netCDF itself puts there.
    absent = np.isnan(values) if values.dtype.kind == "f" else values == default_fill(term.dtype)
    absent = absent if mask is None else absent | mask.reshape(shape)
    rows = [_row(source, variable, term, row, gone) for row, gone in zip(values, absent, strict=True)]
    if rank:
        return tuple(rows)
    if rows[0].tolist() != [1]:
        raise source.fault(variable, f"{term.name!r} is {shown(rows[0].tolist())}: an array without dimensions is one fragment")
    return ()


def _row(source: ForeignFile, variable: Variable, term: Variable, row: np.ndarray, absent: np.ndarray) -> np.ndarray:
    count = int((~absent).sum())
    sizes = row[:count]
    if not count or absent[:count].any():
        raise source.fault(variable, f"{term.name!r} has a row {shown(row[:8].tolist())}: sizes come first, padding after them")
    least = 1 if count > 1 else 0  # one fragment may be all there is of a dimension that has no elements yet
    bad = (sizes < least) | (sizes > MAX_SIZE) | (sizes != np.floor(sizes))
    if bad.any() or float(sizes.sum(dtype=float)) > MAX_SIZE:
        worst = sizes[bad][0] if bad.any() else sizes.max()
        raise source.fault(variable, f"{term.name!r} has a fragment of size {worst}: sizes are whole numbers from 1 on")
    return sizes.astype(np.int64)


def _matrix(source: ForeignFile, layout: _FragmentLayout, terms: Terms) -> Matrix:
    if terms.unique_values is not None:
        return _unique_values(source, layout, terms.unique_values)
    variable, count = layout.variable, prod(layout.cells)
    uris, here = _uris(source, layout, terms)
    if terms.identifiers is None:
        names, named = np.array("", np.dtypes.StringDType()), np.zeros(count, bool)
    else:
        names, named = _texts(source, layout, terms.identifiers, "identifiers", scalar=True, copies=False)
    if not terms.loose and not (here.all() and named.all()):
        cell = int(np.flatnonzero(~(here & named))[0])
        what = terms.uris if not here[cell] else terms.identifiers
        raise source.fault(
            variable, f"fragment {_index(cell, layout)} has no text in {what and what.name!r}: name one for each"
        )
    if (here & ~named).any():
        cell = int(np.flatnonzero(here & ~named)[0])
        raise source.fault(variable, f"fragment {_index(cell, layout)} is in {uris[cell]!r}, but of no variable: name one")
    rows = np.flatnonzero(named)
    refs = np.full(count, -1, np.int32)
    refs[rows] = np.arange(len(rows))
    return layout.matrix(_references(source, layout, (uris, here, names), rows), refs)


def _index(cell: int, layout: _FragmentLayout) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(cell, layout.cells)) if layout.cells else ()


def _texts(
    source: ForeignFile, layout: _FragmentLayout, term: Variable, what: str, scalar: bool, copies: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return a text per fragment (or one for all, where ``scalar``) and which of them are there, flat.

    ``copies``: there may be a trailing dimension, which is kept.
    """
    cells, shape = layout.cells, term.shape
    one = prod(shape) == 1 and (scalar or not prod(cells) > 1)
    trailing = copies and len(shape) == len(cells) + 1 and shape[:-1] == cells
    if term.dtype.kind != "T" or not (one or shape == cells or trailing):
        found = f"{'text' if term.dtype.kind == 'T' else term.dtype} of shape {shape}"
        raise source.fault(layout.variable, f"{what} {term.name!r} are {found}: give texts of shape {cells}, one per fragment")
    values, mask = source.read(layout.variable, term)
    there = np.asarray(values != "")
    there = there if mask is None else there & ~mask
    if one:
        return np.asarray(values).reshape(()), np.broadcast_to(there.reshape(()), (prod(cells),))
    flat = (prod(cells), shape[-1]) if trailing else (prod(cells),)
    return values.reshape(flat), there.reshape(flat)


def _uris(source: ForeignFile, layout: _FragmentLayout, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Return the file name of each fragment as written, and which fragments have one; of several copies the first there is."""
    count = prod(layout.cells)
    if terms.uris is None:
        return np.full(count, "", np.dtypes.StringDType()), np.zeros(count, bool)
    values, there = _texts(source, layout, terms.uris, "uris", scalar=False, copies=terms.loose)
    names = _substituted(source, layout.variable, terms.uris, values) if terms.loose else values
    if names.ndim < 2:
        return np.broadcast_to(names, (count,)), there
    return _first_copies(source, layout.variable, names, there)


def _first_copies(
    source: ForeignFile, variable: Variable, names: np.ndarray, there: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Choose from (fragments, copies) the first copy that exists, else the first that is named."""
    some = np.asarray(there.any(axis=1))
    distinct, number = np.unique(names, return_inverse=True)
    several = there.sum(axis=1) > 1
    asked = np.zeros(len(distinct), bool)
    asked[number.reshape(names.shape)[several].ravel()] = True
    exists = np.zeros(len(distinct), bool)
    for code in np.flatnonzero(asked).tolist():
        exists[code] = distinct[code] != "" and os.path.exists(source.resolve(variable, str(distinct[code])))
    best = np.logical_and(there, exists[number.reshape(names.shape)])
    chosen = np.where(best.any(axis=1), best.argmax(axis=1), there.argmax(axis=1))
    return names[np.arange(len(names)), chosen], some


def _substituted(source: ForeignFile, variable: Variable, term: Variable, values: np.ndarray) -> np.ndarray:
    """Replace what the attribute ``substitutions`` lists as ``${NAME}: text`` pairs."""
    written = term.attrs.get("substitutions")
    if written is None:
        return values
    found = written.split() if isinstance(written, str) else []
    keys, texts = found[::2], found[1::2]
    if len(keys) != len(texts) or not all(k.startswith("${") and k.endswith("}:") for k in keys):
        raise source.fault(variable, f"{term.name!r}: substitutions {shown(written)}: write '${{NAME}}: text' pairs")
    for key, text in zip(keys, texts, strict=True):
        values = np.strings.replace(values, np.asarray(key[:-1], values.dtype), np.asarray(text, values.dtype))
    return values


def _references(
    source: ForeignFile, layout: _FragmentLayout, columns: tuple[np.ndarray, np.ndarray, np.ndarray], rows: np.ndarray
) -> References:
    """Return the sub-arrays of the fragments ``rows``; ``columns``: file names, which of them are there, variable names."""
    uris, here, names = columns
    variable, own = layout.variable, source.structure.uri
    distinct, uri = _distinct(np.where(here, uris, "")[rows])
    resolved = iter(source.resolve_all(variable, [u for u in distinct if u]))
    paths = [next(resolved) if u else own for u in distinct]
    if names.ndim:
        found, name = _distinct(names[rows])
    else:
        found, name = names.reshape(1).tolist(), np.zeros(len(rows), np.int64)
    variables = [n.removeprefix("/") for n in found]
    inside = np.array([p == own for p in paths], bool)[uri]
    source.check_own(variable, [variables[i] for i in np.unique(name[inside]).tolist()], MARKS)
    templates, template = _templates(layout, rows)
    codes = [column.astype(np.int32) for column in (uri, name, template)]
    return References(tuple(paths), tuple(variables), templates, (), codes[0], codes[1], codes[2])


def _distinct(texts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts of a column in the order of their first use, and the number of each one's."""
    numbers: dict[str, int] = {}
    column = [numbers.setdefault(text, len(numbers)) for text in texts.tolist()]
    return list(numbers), np.array(column, np.int64)


def _templates(layout: _FragmentLayout, rows: np.ndarray) -> tuple[tuple[Template, ...], np.ndarray]:
    """Return a declared template per shape of fragments, and the number of that of each row."""
    code = np.zeros(1, np.int64)
    kinds = []
    for sizes in layout.sizes:
        distinct, number = np.unique(sizes, return_inverse=True)
        kinds.append(distinct)
        code = (code[:, np.newaxis] * len(distinct) + number).ravel()
    used, template = np.unique(code[rows], return_inverse=True)
    picked = np.unravel_index(used, [len(k) for k in kinds]) if kinds else ()
    shapes = zip(*(k[p].tolist() for k, p in zip(kinds, picked, strict=True)), strict=True) if kinds else [()] * len(used)
    return tuple(unresolved_template(shape, layout.dimensions, layout.decoding, layout.steps) for shape in shapes), template


def _unique_values(source: ForeignFile, layout: _FragmentLayout, term: Variable) -> Matrix:
    """Return the matrix of fragments of one value each: all show one array in memory, each its own element over and over."""
    cells, variable = layout.cells, layout.variable
    if term.shape != cells and not (prod(term.shape) == 1 == prod(cells)):
        raise source.fault(
            variable, f"unique_values {term.name!r} have shape {term.shape}: give one of each of {cells} fragments"
        )
    if (term.dtype.kind == "T") != (variable.dtype.kind == "T"):
        raise source.fault(variable, f"unique_values {term.name!r} are of {term.dtype}, the array is of {variable.dtype}")
    values = source.stored(variable, term).reshape(cells)
    values.flags.writeable = False
    forward = (True,) * len(cells)
    own = source.encoding(variable, term)
    template = Template(cells, layout.dimensions, forward, *units_of(variable), own, steps=layout.steps)
    count = prod(cells)
    first = np.zeros(1, np.int32)
    references = References((), (), (template,), (values,), first - 1, first, first)
    index = np.unravel_index(np.arange(count), cells) if cells else ()
    starts = {d: np.asarray(i, np.int64) for d, i in zip(layout.dimensions, index, strict=True)}
    still = {d: np.zeros(count, np.int64) for d, s in zip(layout.dimensions, layout.sizes, strict=True) if s.max() > 1}
    longest = max((int(s.max()) for s in layout.sizes), default=0)
    # Step 0 stands for the first of the picks: the same position as often as a fragment is long.
    parts = Parts(starts, still, (np.broadcast_to(np.int64(0), (longest,)),) if still else ())
    return layout.matrix(references, np.zeros(count, np.int32), parts)
