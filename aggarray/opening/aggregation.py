"""The `Aggregation`: master arrays, refusals, and its methods."""

import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aggarray.aggregate.differences import differing_attributes, differing_facets, labels
from aggarray.aggregate.report import (
    Duplicate,
    Problem,
    Report,
    duplicate_problems,
    file_problems,
    gap_problems,
    hole_problems,
    skipped_problems,
)
from aggarray.aggregate.rules import Refusal, Skipped
from aggarray.arrays import MasterArray
from aggarray.errors import AggregationError, MissingFileError, NotFoundError, printable
from aggarray.formats import given_path, local_path, state_path
from aggarray.formats.base import Stamp
from aggarray.index import CONVENTIONS, Opening
from aggarray.index.uris import NOWHERE, check_roots, near
from aggarray.opening.joining import Outcome, Sources, arrays_in, join_arrays, scan_sources, tables_of
from aggarray.opening.persistence import details_to_save
from aggarray.opening.provenance import Provenance, Selection
from aggarray.opening.verification import assumption_problems, check_kept, resolve_array, verified
from aggarray.partition.stored_sizes import join_chunk_indexes
from aggarray.scan.discovery import Source, find_files, listed, named_files
from aggarray.scan.progress import Progress, checked_progress
from aggarray.storage.files import stat_file


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregation:
    """Collection of master arrays: joined data variables with coordinates.

    ``arrays``: the arrays; ``refusals``: why arrays of one identity were not joined; ``skipped``: unusable files and
    variables; ``duplicates``: files left out because they are exact copies of others.
    """

    arrays: tuple[MasterArray, ...]
    refusals: tuple[Refusal, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    _provenance: Provenance = field(default_factory=Provenance)

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct names of the arrays, in order."""
        return tuple(dict.fromkeys(a.name or "" for a in self.arrays))

    def __len__(self) -> int:
        return len(self.arrays)

    def __iter__(self) -> Iterator[MasterArray]:
        return iter(self.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> MasterArray:
        """Return the array of a name.

        Raises NotFoundError, which lists the names, or the attributes in which several arrays of the name differ.
        """
        named = [a for a in self.arrays if a.name == name]
        if len(named) == 1:
            return named[0]
        variable = name if isinstance(name, str) else None
        if not named:
            raise NotFoundError(
                f"no array {name!r}", variable=variable, hint=f"the arrays are: {', '.join(self.names) or 'none'}"
            )
        hint = f"select one with agg.select({name!r}, ...); {distinguishing_text(named)}"
        raise NotFoundError(f"{len(named)} arrays are named {name!r}", hint=hint)

    def select(self, name: str | None = None, **attributes: Any) -> "Aggregation":
        """Return the arrays that have a name and the given attributes.

        Looks up attributes in `attrs`, then in `file_attrs`.
        """
        selection = Selection(None if name is None else (name,), attributes)
        duplicates = self.duplicates
        if duplicates:
            # A file used by an array outside the selection is not a duplicate.
            serving = {str(uri) for array in self.arrays for uri in array._matrix.references.uris}
            duplicates = tuple(d for d in duplicates if d.file not in serving)
        arrays = tuple(a for a in self.arrays if selection.fits(a))
        return replace(self, arrays=arrays, duplicates=duplicates, _provenance=self._provenance.selected(selection))

    def save(
        self, path: str | os.PathLike[str], convention: str = "CF-1.13", relative: bool = True, chunk_table: bool = True
    ) -> Report:
        """Save an index: an aggregation file that reopens without loss.

        Any reader of the convention opens it. ``convention``: "CF-1.13" or "CFA-0.4". ``relative``: file names are relative
        to the folder of the index. ``chunk_table``: store where the chunks of each file lie, so that reads from the index
        open no file through a library; unknown positions are looked up now. Only the values of coordinates and of arrays in
        memory are copied. The report names the arrays that the convention cannot express; only aggarray reads these.

        Files opened with `Rules(trust="assume")` are verified first. The index is replaced atomically. Raises IndexFileError if
        the index was modified since it was opened, or cannot be written, and FormatError for a file that
        differs from its assumed signature.
        """
        if convention not in CONVENTIONS:
            raise AggregationError(f"convention={convention!r} is invalid", hint=f"give one of {', '.join(CONVENTIONS)}")
        how = {"convention": convention, "relative": bool(relative), "chunk_table": bool(chunk_table)}
        with self._provenance.access.reach():
            verified = self._verified()
            result = Outcome(verified.arrays, verified.refusals, verified.skipped, verified.duplicates)
            return details_to_save(local_path(path), result, verified._provenance, how)

    def to_kerchunk(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return kerchunk references to all arrays, and write them to ``path``.

        The path ends with .json (JSON), .parq or .parquet (Parquet). The values stay in their files. Every partition must
        therefore equal the array without arithmetic: one chunk grid (uncompressed data are split to fit), one dtype, byte
        order, codecs, fill value and packing, the same units, calendar, directions and order of dimensions.
        AggregationError names the first partition that differs, and how. The references contain the values of coordinates
        and of arrays in memory, and absolute file paths. The path is replaced once everything is written; raises
        IndexFileError if that fails. Parquet needs the extra ``kerchunk``.
        """
        from aggarray.export.kerchunk import references_of, write

        tables = (one._matrix.references for array in self.arrays for one in (array, *array.coords.values()))
        unresolved = any(template.declared for references in tables for template in references.templates)
        references = references_of(self._verified().arrays if unresolved else self.arrays)
        if path is not None:
            write(references, local_path(path))
        return references

    def _verified(self) -> "Aggregation":
        before = self._provenance
        if not any(s.assumed is not None for s in before.structures()):
            arrays = tuple(map(resolve_array, self.arrays))
            return self if all(map(operator.is_, arrays, self.arrays)) else replace(self, arrays=arrays)
        structures = verified(before.structures(), self.arrays)
        after = replace(before, structures=lambda: structures)
        skipped = [s for s in self.skipped if s.variable is None]
        sources = Sources(structures, list(before.others()), skipped, tables=tables_of(self.arrays))
        outcome = join_arrays(*arrays_in(sources, after.access, self.duplicates), after, self.duplicates)
        check_kept(self.arrays, outcome.arrays)
        return Aggregation(*outcome, after)

    def append(self, source: Source, progress: "bool | Progress | None" = None) -> "Aggregation":
        """Return the aggregation extended by a source.

        The result is equal to opening all files again. Only new and changed files are opened; `skipped` lists unusable
        ones. Raises MissingFileError if the source names no file.
        """
        items = listed(source)
        before = self._provenance.reaching(near(list(map(given_path, items)), NOWHERE))
        scan = None, checked_progress(progress)
        with before.access.reach():
            structures, others = before.sources(self.arrays)
            known = {s.uri: s for s in structures}
            named = find_files(items)
            if before.access.roots is not None:
                check_roots(named, before.access.roots)
            there = {str(uri) for a in others for uri in a._matrix.references.uris}
            paths = [p for p in named if (_has_changed(p, known[p].stamp) if p in known else p not in there)]
            new = scan_sources(paths, named_files(items), before.rules, Opening(before.access), scan)
            gone = [error for error in new.errors if isinstance(error, MissingFileError)]
            if gone and len(gone) == len(paths):
                raise gone[0]
            fresh = {s.uri: s for s in new.structures if s.uri not in known or s.stamp != known[s.uri].stamp}
            anew = {*paths, *fresh}
            kept = {uri: fresh.pop(uri, s) for uri, s in known.items() if uri not in anew or uri in fresh}
            structures, others = [*kept.values(), *fresh.values()], [*others, *new.others]
            skipped = [s for s in self.skipped if s.variable is None and s.file not in anew]
            repeats = [d for d in self.duplicates if d.file not in anew and d.kept not in anew]
            after = replace(before, structures=lambda: structures, others=lambda: others, saved=dict(before.saved))
            tables = join_chunk_indexes(tables_of(self.arrays), new.tables)
            sources = Sources(structures, others, [*skipped, *new.skipped], tables=tables)
            return Aggregation(*join_arrays(*arrays_in(sources, after.access, repeats), after, repeats), after)

    def check(self, checksum: bool = False) -> Report:
        """Report problems of the arrays and their files.

        Problems are gaps in regular time axes, uncovered regions, duplicate files, and missing, changed or unreadable
        files. Opens every file and compares it with its state at the scan: size, modification time and, with ``checksum``,
        the bytes of its head and tail. Compares files opened with ``trust="assume"`` with their assumed signature,
        including additional and absent variables. Reads no values.
        """
        problems: list[Problem] = []
        with self._provenance.access.reach():
            for array in self.arrays:
                problems += gap_problems(array)
                problems += hole_problems(array)
            problems += duplicate_problems(self.duplicates, self.arrays)
            problems += file_problems(self.arrays, {s.uri: s.stamp for s in self._provenance.structures()}, checksum)
            problems += assumption_problems(self._provenance.structures())
            problems += skipped_problems(self.skipped)
        return Report(not problems, tuple(problems))

    def to_xarray(self, chunks: Any = None) -> Any:
        """Return the arrays as a lazy ``xarray.Dataset`` or ``DataTree``.

        A ``DataTree`` holds arrays that do not share names and grid. Decodes as ``xarray.open_dataset`` decodes a file.
        ``chunks``: None = without dask, {} = along the partitions, else as in ``xarray.open_dataset``. Nodes of a tree are
        named by the attributes in which the arrays differ.
        """
        from aggarray.interop.datasets import datasets
        from aggarray.interop.xarray_store import to_datasets

        return to_datasets(datasets(self.arrays), chunks)

    def _repr_html_(self) -> str:
        """Return the HTML representation for notebooks. Reads no file."""
        from aggarray.display.html import aggregation_html

        return aggregation_html(self.arrays, labels(self.arrays), self.refusals, self.skipped)

    def __repr__(self) -> str:
        lines = [f"<aggarray.Aggregation of {len(self.arrays)} arrays>"]
        suffixes = [f" [{label}]" if label else "" for label in labels(self.arrays)]
        named = zip(self.arrays[:20], suffixes, strict=False)
        lines += [f"  {repr(array).splitlines()[0]}{printable(suffix)}" for array, suffix in named]
        lines += [f"  ... and {len(self.arrays) - 20} more"] if len(self.arrays) > 20 else []
        if self.refusals or self.skipped:
            lines.append(f"  {len(self.refusals)} refusals, {len(self.skipped)} skipped")
        return "\n".join(lines)


def _has_changed(path: str, stamp: Stamp | None) -> bool:
    """Return whether a file has changed or cannot be accessed."""
    try:
        status = stat_file(state_path(path))
    except OSError:
        return True
    # promise: append-rescans-changed
    return stamp is None or (status.size, status.mtime_ns) != stamp[:2]


def distinguishing_text(arrays: Sequence[MasterArray]) -> str:
    """Describe the attributes in which arrays differ, facets first."""
    texts = []
    for differing in (differing_facets(arrays), differing_attributes(arrays)):
        for key, values in sorted(differing, key=lambda item: -len(set(item[1]))):
            distinct = sorted({v for v in values if v is not None}) + ["none"] * (None in values)
            texts.append(f"{key}: {', '.join(distinct[:8])}{', ...' if len(distinct) > 8 else ''}")
    if texts:
        return "they differ in " + "; ".join(texts[:4])
    return f"their shapes are {', '.join(str(a.shape) for a in arrays[:8])}"
