"""Orthogonal arrays of fragments in netCDF variables, read into a matrix.

A ``map`` gives the sizes of the fragments along each dimension (CF section 2.8, CFA-0.6.2). ``uris`` and ``identifiers`` locate
each fragment, or ``unique_values`` hold its single value. Everything is done in columns, without a Python object per fragment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from aggarray.cf.encoding import Encoding, default_fill
from aggarray.dataclass import dataclass
from aggarray.formats.base import Variable
from aggarray.index.conventions.foreign import ForeignArrays, ForeignFile, ordinary, shown, units_of, unresolved_template
from aggarray.memory.texts import Texts
from aggarray.partition.matrix import MAX_CELLS, Matrix, Parts, References, Step, Template

#: Largest size of a dimension.
MAX_SIZE = 2**62

MARKS = ("aggregated_data",)

#: Lower-case terms that only CFA-0.6.2 and pre-release files have, and terms that only CF-1.13 has.
LEGACY = frozenset(("location", "file", "address", "format", "shape", "value"))
CURRENT = frozenset(("map", "uris", "identifiers", "unique_values"))

_OWN = ("aggregated_", "cfa_")


@dataclass(frozen=True, slots=True)
class Terms:
    """Variables of the terms, named as in CF-1.13; ``others``: other terms.

    ``loose``: fragments and identifiers may be missing, and a trailing dimension of ``uris`` lists copies.
    """

    map: Variable
    uris: Variable | None = None
    identifiers: Variable | None = None
    unique_values: Variable | None = None
    loose: bool = False
    others: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _FragmentLayout:
    """An aggregation variable, and the sizes of its fragments by dimension."""

    variable: Variable
    dimensions: tuple[str, ...]
    sizes: tuple[np.ndarray, ...]
    decoding: Encoding
    steps: tuple[Step, ...]

    @property
    def cells(self) -> tuple[int, ...]:
        return tuple(len(s) for s in self.sizes)

    def matrix(self, references: References, refs: np.ndarray, parts: Parts | None = None) -> Matrix:
        edges = tuple(np.zeros(len(s) + 1, np.int64) for s in self.sizes)
        for sizes, axis in zip(self.sizes, edges, strict=True):
            np.cumsum(sizes, out=axis[1:])
        return Matrix(self.dimensions, (True,) * len(edges), edges, references, refs, parts or Parts())


def is_legacy(variable: Variable) -> bool:
    """Return whether an aggregation variable has terms of CFA-0.6.2."""
    written = variable.attrs.get("aggregated_data")
    keys = {word[:-1].lower() for word in written.split() if word.endswith(":")} if isinstance(written, str) else set()
    return bool(keys & LEGACY) and not keys & CURRENT


def parsed_terms(source: ForeignFile, variable: Variable) -> dict[str, str]:
    """Return the terms of ``aggregated_data``, or raise IndexFileError."""
    written = variable.attrs.get("aggregated_data")
    words = written.split() if isinstance(written, str) else []
    keys, names = words[::2], words[1::2]
    valid = len(keys) == len(names) and all(k.endswith(":") and len(k) > 1 for k in keys)
    if not words or not valid or any(n.endswith(":") for n in names) or len(set(keys)) < len(keys):
        hint = "write 'term: variable' pairs, each term once"
        raise source.fault(variable, f"invalid aggregated_data {shown(written)}", hint)
    return {k[:-1]: n for k, n in zip(keys, names, strict=True)}


def term_variable(source: ForeignFile, variable: Variable, term: str, name: str) -> Variable:
    """Return the variable of a term, or raise IndexFileError."""
    target = source.find(name, variable)
    if target is None:
        reason = dict(source.structure.skipped).get(name, "which does not exist")
        raise source.fault(variable, f"aggregated_data: {term} is variable {shown(name)}, {reason}")
    if any(mark in target.attrs for mark in MARKS):
        raise source.fault(variable, f"aggregated_data: {term} is variable {shown(name)}, an aggregation variable itself")
    return target


def foreign(
    source: ForeignFile, variables: Iterable[Variable], terms_of: Callable[[ForeignFile, Variable], Terms]
) -> ForeignArrays:
    """Return the aggregation variables of a file; drop those of their terms."""
    made, matrices, dropped = {}, {}, set[str]()
    for variable, terms in [(v, terms_of(source, v)) for v in variables]:
        layout = _layout(source, variable, terms.map)
        matrix = matrices[variable.name] = _matrix(source, layout, terms)
        made[variable.name] = ordinary(variable, layout.dimensions, matrix.shape, _OWN)
        used = (terms.map, terms.uris, terms.identifiers, terms.unique_values, *terms.others)
        dropped.update(v.name for v in used if v is not None)
    return ForeignArrays(source.rewritten(made, dropped), matrices)


def _layout(source: ForeignFile, variable: Variable, map_variable: Variable) -> _FragmentLayout:
    names, dimensions = source.dimensions(variable, "aggregated_dimensions")
    sizes = _sizes(source, variable, map_variable, len(names))
    for name, lengths in zip(names, sizes, strict=True):
        size, total = source.dimension(name, variable), int(lengths.sum())
        if size is not None and total != size:
            what = f"length of the fragments along {name!r} ({map_variable.name!r}) is {total}, that of the dimension {size}"
            raise source.fault(variable, what)
    if prod(len(s) for s in sizes) > MAX_CELLS:
        counts = " x ".join(str(len(s)) for s in sizes)
        raise source.fault(variable, f"{counts} fragments are more than {MAX_CELLS}", "divide it into several variables")
    return _FragmentLayout(variable, dimensions, sizes, *source.master(variable))


def _sizes(source: ForeignFile, variable: Variable, term: Variable, rank: int) -> tuple[np.ndarray, ...]:
    if term.dtype.kind not in "iuf":
        raise source.fault(variable, f"{term.name!r} is of {term.dtype}, but sizes of fragments are integers")
    values, mask = source.read(variable, term)
    shape = (1, values.size) if rank <= 1 and values.ndim <= 1 else values.shape
    if len(shape) != 2 or shape[0] != max(rank, 1):
        hint = f"give a row of sizes for each of {rank} dimensions"
        raise source.fault(variable, f"{term.name!r} has shape {term.shape}", hint)
    values = values.reshape(shape)
    # Without a declared fill value, padding is the default fill value of netCDF.
    absent = np.isnan(values) if values.dtype.kind == "f" else values == default_fill(term.dtype)
    absent = absent if mask is None else absent | mask.reshape(shape)
    rows = [_row(source, variable, term, row, gone) for row, gone in zip(values, absent, strict=True)]
    if not rank and rows[0].tolist() != [1]:
        what = f"{term.name!r} is {shown(rows[0].tolist())}, but an array without dimensions is one fragment"
        raise source.fault(variable, what)
    return tuple(rows) if rank else ()


def _row(source: ForeignFile, variable: Variable, term: Variable, row: np.ndarray, absent: np.ndarray) -> np.ndarray:
    count = len(row) - int(np.count_nonzero(absent))
    sizes = row[:count]
    if not count or absent[:count].any():
        what = f"{term.name!r} has an invalid row {shown(row[:8].tolist())}"
        raise source.fault(variable, what, "write the sizes first, then padding")
    least = 1 if count > 1 else 0  # a dimension without elements may have one fragment
    small, large = sizes.min().item(), sizes.max().item()
    if small < least or large * count > MAX_SIZE or (sizes.dtype.kind == "f" and (sizes != np.floor(sizes)).any()):
        bad = (sizes < least) | (sizes > MAX_SIZE) | (sizes != np.floor(sizes))
        if not bad.any() and float(sizes.sum(dtype=float)) <= MAX_SIZE:
            return sizes.astype(np.int64)
        worst = sizes[bad][0] if bad.any() else sizes.max()
        raise source.fault(variable, f"{term.name!r} has a fragment of size {worst}, but sizes are positive integers")
    return sizes.astype(np.int64)


def _matrix(source: ForeignFile, layout: _FragmentLayout, terms: Terms) -> Matrix:
    if terms.unique_values is not None:
        return _unique_values(source, layout, terms.unique_values)
    variable, count = layout.variable, prod(layout.cells)
    uris, has_uri = _uris(source, layout, terms)
    if terms.identifiers is None:
        names, has_name = Texts.of([""]), np.zeros(count, bool)
    else:
        names, has_name = _texts(source, layout, terms.identifiers, "identifiers", scalar=True, copies=False)
    incomplete = has_uri & ~has_name if terms.loose else ~(has_uri & has_name)
    if incomplete.any():
        cell = int(incomplete.argmax())
        fragment = f"fragment {tuple(map(int, np.unravel_index(cell, layout.cells))) if layout.cells else ()}"
        if terms.loose:
            raise source.fault(variable, f"{fragment} in {uris[cell]!r} has no variable", "name one")
        term = terms.uris if not has_uri[cell] else terms.identifiers
        raise source.fault(variable, f"{fragment} has no text in {term and term.name!r}", "name one for each fragment")
    if has_name.all():
        rows, refs = np.arange(count), np.arange(count, dtype=np.int32)
    else:
        rows, refs = np.flatnonzero(has_name), np.where(has_name, np.cumsum(has_name) - 1, -1).astype(np.int32)
    return layout.matrix(_references(source, layout, (uris, has_uri, names), rows), refs)


def _texts(
    source: ForeignFile, layout: _FragmentLayout, term: Variable, what: str, scalar: bool, copies: bool
) -> tuple[Texts, np.ndarray]:
    """Return the text of each fragment and which of them exist, flat.

    ``scalar``: a single text may apply to all fragments; ``copies``: a trailing dimension is allowed and kept.
    """
    cells, shape = layout.cells, term.shape
    single = prod(shape) == 1 and (scalar or not prod(cells) > 1)
    trailing = copies and len(shape) == len(cells) + 1 and shape[:-1] == cells
    if term.dtype.kind != "T" or not (single or shape == cells or trailing):
        actual = f"{'text' if term.dtype.kind == 'T' else term.dtype} of shape {shape}"
        hint = f"give texts of shape {cells}, one per fragment"
        raise source.fault(layout.variable, f"{what} {term.name!r} are {actual}", hint)
    texts, exists = source.texts(layout.variable, term)
    return texts, np.broadcast_to(exists, (prod(cells),)) if single else exists


def _uris(source: ForeignFile, layout: _FragmentLayout, terms: Terms) -> tuple[Texts, np.ndarray]:
    """Return the file name of each fragment, and which fragments have one."""
    count = prod(layout.cells)
    if terms.uris is None:
        return Texts(np.zeros(0, np.uint8), np.zeros(count, np.int64)), np.zeros(count, bool)
    texts, has_name = _texts(source, layout, terms.uris, "uris", scalar=False, copies=terms.loose)
    texts = _substituted(source, layout.variable, terms.uris, texts) if terms.loose else texts
    if len(texts) == count:
        return texts, has_name
    # Of several copies, the first that exists is used, else the first with a name; arrays are (fragments, copies).
    names, has_name = list(texts), has_name.reshape(count, -1)
    several = {
        names[i] for i in np.flatnonzero(np.broadcast_to(has_name.sum(axis=1, keepdims=True) > 1, has_name.shape)).tolist()
    }
    existing = {n for n in several if n and os.path.exists(source.resolve(layout.variable, n))}
    exists = np.array([n in existing for n in names], bool).reshape(has_name.shape) & has_name
    chosen = np.where(exists.any(axis=1), exists.argmax(axis=1), has_name.argmax(axis=1))
    return texts.take(np.arange(count) * has_name.shape[1] + chosen), np.asarray(has_name.any(axis=1))


def _substituted(source: ForeignFile, variable: Variable, term: Variable, texts: Texts) -> Texts:
    """Replace the ``${NAME}: text`` pairs of the attribute ``substitutions``."""
    written = term.attrs.get("substitutions")
    if written is None:
        return texts
    words = written.split() if isinstance(written, str) else []
    keys, replacements = words[::2], words[1::2]
    if len(keys) != len(replacements) or not all(k.startswith("${") and k.endswith("}:") for k in keys):
        raise source.fault(variable, f"{term.name!r} has invalid substitutions {shown(written)}", "write '${NAME}: text' pairs")
    values = list(texts)
    for key, replacement in zip(keys, replacements, strict=True):
        values = [value.replace(key[:-1], replacement) for value in values]
    return Texts.of(values)


def _references(
    source: ForeignFile, layout: _FragmentLayout, columns: tuple[Texts, np.ndarray, Texts], rows: np.ndarray
) -> References:
    """Return sub-arrays of ``rows``; ``columns``: files, existence, variables."""
    uris, has_uri, names = columns
    if not has_uri.all():
        uris = Texts(uris.buffer, np.where(has_uri, uris.lengths, 0), uris.starts)
    uris = uris.take(rows)
    first, uri = uris.distinct()
    files, is_own = source.resolve_texts(layout.variable, uris.take(first))
    if len(names) == 1:
        first, name = np.zeros(1, np.int64), np.zeros(len(rows), np.int32)
    else:
        names = names.take(rows)
        first, name = names.distinct()
    variables = [n.removeprefix("/") for n in names.take(first)]
    if is_own.any():
        source.check_own(layout.variable, [variables[i] for i in np.unique(name[is_own[uri]]).tolist()], MARKS)
    templates, template = _templates(layout, rows)
    codes = [column.astype(np.int32, copy=False) for column in (uri, name, template)]
    return References(files, tuple(variables), templates, (), codes[0], codes[1], codes[2])


def _templates(layout: _FragmentLayout, rows: np.ndarray) -> tuple[tuple[Template, ...], np.ndarray]:
    """Return a template per shape of fragments, and its number for each row."""
    if len(rows) and all((sizes == sizes[0]).all() for sizes in layout.sizes):
        shape = tuple(int(sizes[0]) for sizes in layout.sizes)
        template = unresolved_template(shape, layout.dimensions, layout.decoding, layout.steps)
        return (template,), np.zeros(len(rows), np.int32)
    code = np.zeros(1, np.int64)
    lengths = []
    for sizes in layout.sizes:
        distinct, number = np.unique(sizes, return_inverse=True)
        lengths.append(distinct)
        code = (code[:, np.newaxis] * len(distinct) + number).ravel()
    used, number = np.unique(code[rows], return_inverse=True)
    picked = np.unravel_index(used, [len(k) for k in lengths]) if lengths else ()
    shapes = zip(*(k[p].tolist() for k, p in zip(lengths, picked, strict=True)), strict=True) if lengths else [()] * len(used)
    return tuple(unresolved_template(shape, layout.dimensions, layout.decoding, layout.steps) for shape in shapes), number


def _unique_values(source: ForeignFile, layout: _FragmentLayout, term: Variable) -> Matrix:
    """Return the matrix of fragments of one value, which share one array."""
    cells, variable = layout.cells, layout.variable
    if term.shape != cells and not (prod(term.shape) == 1 == prod(cells)):
        what = f"unique_values {term.name!r} have shape {term.shape}"
        raise source.fault(variable, what, f"give one for each of {cells} fragments")
    if (term.dtype.kind == "T") != (variable.dtype.kind == "T"):
        raise source.fault(variable, f"unique_values {term.name!r} are of {term.dtype}, but the array is of {variable.dtype}")
    values = source.stored(variable, term).reshape(cells)
    values.flags.writeable = False
    forward = (True,) * len(cells)
    encoding = source.encoding(variable, term)
    template = Template(cells, layout.dimensions, forward, *units_of(variable), encoding, steps=layout.steps)
    count = prod(cells)
    first = np.zeros(1, np.int32)
    references = References((), (), (template,), (values,), first - 1, first, first)
    index = np.unravel_index(np.arange(count), cells) if cells else ()
    starts = {d: np.asarray(i, np.int64) for d, i in zip(layout.dimensions, index, strict=True)}
    repeated = {d: np.zeros(count, np.int64) for d, s in zip(layout.dimensions, layout.sizes, strict=True) if s.max() > 1}
    longest = max((int(s.max()) for s in layout.sizes), default=0)
    # Step 0 refers to the first of the picks: the same position, repeated along the fragment.
    parts = Parts(starts, repeated, (np.broadcast_to(np.int64(0), (longest,)),) if repeated else ())
    return layout.matrix(references, np.zeros(count, np.int32), parts)
