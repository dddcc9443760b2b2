"""The `Aggregation`: master arrays, refusals, and its methods."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.rules import Duplicate, Refusal, Skipped
from aggarray.arrays.master import MasterArray
from aggarray.arrays.values import AttributeHints
from aggarray.dataclass import dataclass, field, replace
from aggarray.errors import NotFoundError, SelectionError, names_hint
from aggarray.opening.provenance import Listing, Outcome, Provenance, Selection

if TYPE_CHECKING:
    from xarray import Dataset
    from zarr.abc.store import Store

    from aggarray.aggregate.report import Report
    from aggarray.scan.fixes import Fix
    from aggarray.scan.progress import Progress
    from aggarray.storage.files import Source


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregation(AttributeHints):
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
    def _outcome(self) -> Outcome:
        return Outcome(self.arrays, self.refusals, self.skipped, self.duplicates)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The fixes that are applied to the metadata of the files, in order."""
        return self._provenance.fixes

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

    def keys(self) -> tuple[str, ...]:
        """Return `names`: a name that several arrays have occurs once."""
        return self.names

    def values(self) -> tuple[MasterArray, ...]:
        """Return the arrays."""
        return self.arrays

    def items(self) -> tuple[tuple[str, MasterArray], ...]:
        """Return a pair (name, array) of each array; names may repeat.

        >>> import aggarray as aa
        >>> [(name, array.shape) for name, array in aa.open("sample_data/archive").items()]
        [('tas', (365, 18, 36))]
        """
        return tuple((a.name or "", a) for a in self.arrays)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.names)

    def __getitem__(self, name: str) -> MasterArray:
        """Return the array of a name.

        Raises NotFoundError, which lists the names, or the attributes in which several arrays of the name differ.
        """
        named = [a for a in self.arrays if a.name == name]
        if len(named) == 1:
            return named[0]
        variable = name if isinstance(name, str) else None
        if not named:
            hint = names_hint(name, self.names, "the arrays are")
            if not variable:
                several = isinstance(name, list | tuple | set)
                hint += "; select several by agg.select([...])" if several else "; agg.arrays[0] is the first"
            raise NotFoundError(f"no array {name!r}", variable=variable, hint=hint)
        from aggarray.aggregate.differences import distinguishing_text

        hint = f"select one with agg.select({name!r}, ...); {distinguishing_text(named)}"
        raise NotFoundError(f"{len(named)} arrays are named {name!r}", hint=hint)

    def select(self, name: str | Sequence[str] | None = None, **attributes: Any) -> Aggregation:
        """Return the arrays that have a name and the given attributes.

        Looks up attributes in `attrs`, then in `file_attrs`. A list of names or values selects the arrays that have any of
        them. Numbers are compared by value. Raises NotFoundError for a name, an attribute or a value that no array has, with
        similar ones and those there are.
        """
        from aggarray.opening.selection import select_arrays

        names = None if name is None else tuple(name) if isinstance(name, Iterable) and not isinstance(name, str) else (name,)
        selection = Selection(names, {k: list(v) if isinstance(v, set | frozenset) else v for k, v in attributes.items()})
        duplicates = self.duplicates
        if duplicates:
            # A file used by an array outside the selection is not a duplicate.
            from aggarray.partition.file_names import paths_among

            serving = paths_among((array._matrix.references for array in self.arrays), {d.file for d in duplicates})
            duplicates = Listing(d for d in duplicates if d.file not in serving)
        arrays = select_arrays(self.arrays, selection.names, selection.attributes)
        return replace(self, arrays=arrays, duplicates=duplicates, _provenance=self._provenance.selected(selection))

    def sel(
        self, given: Mapping[str, Any] | None = None, /, method: str | None = None, tolerance: Any = None, **labels: Any
    ) -> Aggregation:
        """Select lazily by coordinate values, in every array with the dimension.

        The arguments are those of `MasterArray.sel`. Arrays without the dimension stay as they are. Save or append before you
        select: `append` joins new files with the selected arrays. Raises NotFoundError for a dimension that no array has, and
        for a label that one of the arrays with the dimension lacks.

        >>> import aggarray as aa
        >>> agg = aa.open("sample_data/archive").sel(time="2001-07", lat=slice(-30, 30))
        >>> agg["tas"].sizes
        {'time': 31, 'lat': 6, 'lon': 36}
        """
        from aggarray.opening.dimensions import keys_of, select_along

        keys = keys_of(given, labels)
        chosen = select_along(self.arrays, keys, lambda a, own: a.sel(own, method, tolerance), NotFoundError)
        return self._with_arrays(chosen)

    def isel(self, given: Mapping[str, Any] | None = None, /, **indexers: Any) -> Aggregation:
        """Select lazily by position, in every array that has the dimension.

        The arguments are those of `MasterArray.isel`; otherwise as `sel`. Raises SelectionError for a dimension that no array
        has, and for positions out of range in one of the arrays.

        >>> import aggarray as aa
        >>> aa.open("sample_data/archive").isel(time=0)["tas"].dims
        ('lat', 'lon')
        """
        from aggarray.opening.dimensions import keys_of, select_along

        keys = keys_of(given, indexers)
        return self._with_arrays(select_along(self.arrays, keys, lambda a, own: a.isel(own), SelectionError))

    def _with_arrays(self, arrays: tuple[MasterArray, ...]) -> Aggregation:
        """Return an aggregation of arrays that no longer equal their files."""
        return replace(self, arrays=arrays, _provenance=self._provenance.of_arrays())

    def close(self) -> None:
        """Close the files that this process keeps open for reading the arrays.

        Reads keep files open, up to a limit (`set_options(open_files=...)`). The arrays stay usable: a later read opens files
        again. ``with aa.open(...) as agg:`` closes them at the end of the block.

        >>> import aggarray as aa
        >>> with aa.open("sample_data/archive") as agg:
        ...     values = agg["tas"][:10]
        >>> agg["tas"][:10].shape == values.shape
        True
        """
        from aggarray.partition.file_names import paths_among
        from aggarray.read import close_files, open_paths

        tables = (one._matrix.references for array in self.arrays for one in (array, *array.coords.values()))
        close_files(paths_among(tables, open_paths()))

    def __enter__(self) -> Aggregation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def save(
        self,
        path: str | os.PathLike[str],
        convention: str = "CF-1.13",
        relative: bool = True,
        chunk_table: bool = True,
        executor: Any = None,
    ) -> Report:
        """Save an index: an aggregation file that reopens without loss.

        Any reader of the convention opens it. ``path``: a local path, or an address such as ``s3://bucket/index.nca``, written
        with the ``storage_options`` of the aggregation. ``convention``: "CF-1.13" or "CFA-0.4". ``relative``: file names are
        relative to the folder of the index. ``chunk_table``: store where the chunks of each file lie, so that reads from the
        index open no file through a library; unknown positions are looked up now. ``executor``: looks them up, see `open`. Only
        the values of coordinates and of arrays in memory are copied. The report names the arrays that the convention cannot
        express; only aggarray reads these.

        Files opened with `Rules(trust="assume")` are verified first. An index at ``path`` is replaced atomically, also one that
        the aggregation was not opened from. Raises IndexFileError if another process modified the index since the aggregation
        was opened from it or saved to it, for another file at ``path``, or if it cannot be written, and FormatError for a file
        that differs from its assumed signature.
        """
        from aggarray.opening.persistence import save

        how = {"convention": convention, "relative": bool(relative), "chunk_table": bool(chunk_table)}
        return save(path, self._outcome, self._provenance, how, executor)

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
        from aggarray.storage.files import local_path

        references = references_of(self._resolved())
        if path is not None:
            write(references, local_path(path))
        return references

    def _resolved(self) -> tuple[MasterArray, ...]:
        """Return the arrays, verified if they were opened with ``trust="assume"``."""
        from aggarray.opening.verification import verified

        tables = (one._matrix.references for array in self.arrays for one in (array, *array.coords.values()))
        unresolved = any(template.declared for references in tables for template in references.templates)
        return verified(self._outcome, self._provenance)[0].arrays if unresolved else self.arrays

    def to_icechunk(self, location: str | os.PathLike[str], copy: bool = False) -> Report:
        """Write the arrays to a new Icechunk repository.

        They are one commit to ``main``. The layout is that of `to_zarr_store`. Arrays whose stored chunks form a regular grid
        with one chain of codecs become references to the files: their values are not copied, and packed values stay packed,
        with the attributes that decode them. Coordinates, arrays in memory and arrays of up to 64 kB are written by value.
        ``location``: a local folder that is new or empty. ``copy``: write the conformed values of the other arrays; without
        it, these are left out, and the report gives the reason for each. Icechunk raises an error when it reads a file that
        was modified after the commit.

        The folder appears once everything is written. Raises IndexFileError if it is not empty or cannot be written, and the
        errors of reading. Needs the extra ``icechunk``.
        """
        from aggarray.export.icechunk.repository import write_repository
        from aggarray.storage.files import local_path

        return write_repository(self._resolved(), local_path(location), copy)

    def to_zarr_store(self, chunks: Mapping[str, int] | None = None, compressor: str | None = None) -> Store:
        """Return the arrays as a read-only Zarr store, without copying values.

        A ``zarr.abc.store.Store`` of version 3, with consolidated metadata; the keys of version 2 exist too. Each chunk holds
        conformed values, read from the files on request. Arrays are at the root if their names are unique, else in
        one group per dataset, with their coordinates beside them. ``chunks``: size by dimension, -1 for all; the others are
        chosen, up to 8 MB, so that stored chunks are decoded once where a regular grid allows it. ``compressor``: None, or a
        text such as "zstd:3", as for `extract`. The store pickles, and is thread-safe.

        Raises SelectionError for invalid chunks, and AggregationError for arrays that Zarr cannot hold.

        >>> import aggarray as aa, zarr
        >>> store = aa.open("sample_data/archive").to_zarr_store()
        >>> zarr.open(store)["tas"].shape
        (365, 18, 36)
        """
        from aggarray.export.zarr_view.store import view_of

        return view_of(self.arrays, chunks, compressor)

    def append(self, source: Source, progress: bool | Progress | None = None, executor: Any = None) -> Aggregation:
        """Return the aggregation extended by a source.

        The result is equal to opening all files again, with the same fixes. Only new and changed files are opened; `skipped`
        lists unusable ones. ``source``, ``progress``, ``executor``: as in `open`. A changed file keeps the attributes that a
        catalogue gave to it. Raises MissingFileError if the source names no file.
        """
        from aggarray.opening.appending import extended

        outcome, provenance = extended(self._outcome, self._provenance, source, progress, executor)
        return Aggregation(*outcome, provenance)

    def check(self, checksum: bool = False) -> Report:
        """Report problems of the arrays and their files.

        Problems are gaps in time axes (judged by ``frequency``, ``table_id``, or the usual step), uncovered regions, duplicate
        files, missing, changed or unreadable files, and fixes that match no file. Opens every file and compares it with its
        state at the scan: size, modification time and, with ``checksum``, the bytes of its head and tail. Compares files opened
        with ``trust="assume"`` with their assumed signature, including additional and absent variables. Reads no values.
        """
        from aggarray.opening.checking import check

        return check(self._outcome, self._provenance, checksum)

    def check_layout(self, profile: str | os.PathLike[str] | None = None) -> Report:
        """Report how the files store the arrays, where a profile wants otherwise.

        ``profile``: "default" (None), "cmip7", "cloud" or a TOML file. Findings are chunks that are too small, too large,
        padded or irregular, filters and packing that differ between files, scattered metadata, names, `tracking_id`, bounds and
        attributes. Reads headers and chunk indexes of all files, no values. A finding names all files with the same fault in
        ``files``; its ``remedy`` is a line of the shell that mends the first file, or extracts the array. Files that cannot be
        read are findings too. Raises AggregationError or MissingFileError for an invalid profile.

        >>> import aggarray as aa
        >>> aa.open("sample_data/tiles").check_layout("cloud").ok
        True
        """
        from aggarray.layout.checking import check_layout
        from aggarray.layout.profiles import load_profile

        return check_layout(self, load_profile(profile))

    def to_xarray(self, chunks: Any = None) -> Dataset | Any:
        """Return the arrays as a lazy ``xarray.Dataset`` or ``DataTree``.

        A ``DataTree`` holds arrays that do not share names and grid. Decodes as ``xarray.open_dataset`` decodes a file.
        ``chunks``: None = without dask, {} = stored chunks, merged up to 100 MB, else as in ``xarray.open_dataset``. Nodes of
        a tree are named by the attributes in which the arrays differ.
        """
        from aggarray.interop.aggregations import to_xarray

        return to_xarray(self.arrays, chunks)

    def _repr_html_(self) -> str:
        """Return the HTML representation for notebooks. Reads no file."""
        from aggarray.display.notebook.aggregation import aggregation_html

        return aggregation_html(self.arrays, self.refusals, self.skipped, self._provenance.separates)

    def __repr__(self) -> str:
        from aggarray.display.reprs import aggregation_text

        return aggregation_text(self)
