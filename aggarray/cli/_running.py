"""Execution of a job, which skips steps whose output is up to date."""

from __future__ import annotations

import datetime
import errno
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from aggarray.arrays.master import MasterArray
from aggarray.cli import _labels
from aggarray.cli._common import make_rules, open_source, progress_bar, select_where
from aggarray.cli._datasets import as_keys, converted, require_dataset
from aggarray.cli._forecast import views_of
from aggarray.cli._job import Job
from aggarray.cli._output import describe_output, shapes_of
from aggarray.cli._reductions import reduced_arrays, shapes_in
from aggarray.dataclass import dataclass, field
from aggarray.display import report
from aggarray.display.markup import counted, printable
from aggarray.errors import AggarrayError, NotFoundError
from aggarray.export.extract import extract, is_extracted
from aggarray.export.extract.target import ExtractTarget
from aggarray.index.uris import near, path_map
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.appending import has_changed
from aggarray.opening.where import TextSelection
from aggarray.scan.discovery import find_files, leaving_out
from aggarray.storage.locks import locked_file, unlock
from aggarray.storage.urls import is_remote


@dataclass(slots=True)
class Run:
    """Run of a job; ``steps``: the steps carried out so far, as plain data."""

    job: Job
    dry: bool
    quiet: bool
    steps: list[dict[str, str]] = field(default_factory=list)
    failed: bool = False
    unlogged: bool = False

    def note(self, step: str, path: str, text: str) -> None:
        """Write a step to standard output, errors to standard error, and log it."""
        line = printable(f"{step} {path}: {text}")
        is_printed = step not in ("start", "end")
        if is_printed:
            self.steps.append({"step": step, "path": path, "done": text})
        if step == "error":
            click.echo(f"aggarray: {line.removeprefix('error ')}", err=True)
        elif is_printed and not self.quiet:
            click.echo(line)
        if self.job.log is None or self.dry:
            return
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            _append(self.job.log, f"{now} {line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:  # printed once; the run continues without a log
            if not self.unlogged:
                why = f"cannot be written: {error.strerror}; check the folder, its permissions and its space"
                click.echo(printable(f"aggarray: {self.job.log}: {why}"), err=True)
            self.failed = self.unlogged = True

    def all_steps(self) -> None:
        """Carry out all steps; a failed step stops only the steps that need it."""
        self.note("start", self.job.path, "run" if not self.dry else "would be run")
        with leaving_out(self.job.outputs()):
            agg: Any = self._try("index" if self.job.index else "input", self._aggregation)
        if agg is not None or (self.dry and not self.failed):
            for output in self.job.extracts:
                self._try(f"extract {output['path']}", partial(self._extract, agg, output))
            for output in self.job.reductions:
                self._try(f"reduce {output['path']}", partial(self._extract, agg, output))
            for output in self.job.pages:
                self._try(f"page {output['path']}", partial(self._page, agg, output))
            if self.job.check is not None:
                self._try("check", partial(self._check, agg))
        self.note("end", self.job.path, "problems" if self.failed else "done")

    def _try(self, what: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (AggarrayError, click.UsageError, OSError) as error:
            self.failed = True
            # The line names the path of the step already.
            if isinstance(error, AggarrayError) and error.path == what.partition(" ")[2]:
                error.path = None
            self.note("error", what, error.format_message() if isinstance(error, click.UsageError) else str(error))
            return None

    def _aggregation(self) -> Aggregation | None:
        """Return the aggregation of the inputs, from an updated index."""
        job = self.job
        if not job.index:
            return self._opened(job.opening)
        path = job.index["path"]
        if self.dry:
            return self._preview_index(path)
        before = self._stored(path)
        after = before.append(job.source, progress=progress_bar()) if before is not None else None
        if after is None or after._provenance.rules != make_rules(job.rules):
            after = self._opened(_opening(job))
        options: dict[str, Any] = {"convention": "CF-1.13", "relative": True, "chunk_table": True}
        options |= {name: value for name, value in job.index.items() if name in options}
        if before is not None and _is_same(before, after) and before._provenance.how == options:
            # promise: job-stale-lock
            unlock(os.path.realpath(path))
            self.note("index", path, "unchanged")
            return before
        after.save(path, **options)
        old, now = _stamps(before) if before is not None else {}, _stamps(after)
        changes = f"{len(now.keys() - old.keys())} new, {sum(old[uri] != now[uri] for uri in old.keys() & now.keys())} changed"
        self.note("index", path, f"saved, {counted(len(after), 'array')} of {counted(len(now), 'file')}: {changes}")
        # The following steps are then the same as in a run with an up-to-date index.
        return open_source([path], (), _opening(job))

    def _opened(self, opening: Mapping[str, Any]) -> Aggregation:
        job = self.job
        agg = open_source(job.source, job.variables, {**opening, "fixes": job.fixes}, job.rules)
        return select_where(agg, job.where, "where")

    def _stored(self, path: str) -> Aggregation | None:
        """Return the index, None if it does not exist or has other variables.

        The index must also hold the selection and the fixes of the input.
        """
        if not os.path.lexists(path):
            return None
        agg = open_source([path], (), _opening(self.job))
        stored = [s.patterns for s in agg._provenance.selections if isinstance(s, TextSelection)]
        expected = [self.job.where] if self.job.where else []
        is_same = agg._provenance.variables == (tuple(self.job.variables) or None) and agg.fixes == self.job.fixes
        return agg if is_same and list(map(_joined, stored)) == list(map(_joined, expected)) else None

    def _preview_index(self, path: str) -> Aggregation | None:
        """Print the pending change of the index; return it if there is none."""
        files, before = find_files(self.job.source), self._stored(path)
        if before is None or before._provenance.rules != make_rules(self.job.rules):
            self.note("index", path, f"would be made of {counted(len(files), 'file')}")
            return None
        stamps, lost = _stamps(before), {s.file for s in before.skipped if s.variable is None}
        new = sum(f not in stamps and f not in lost for f in files)
        changed = sum(f in stamps and has_changed(f, stamps[f]) for f in files)
        if not new and not changed:
            self.note("index", path, "unchanged")
            return before
        self.note("index", path, f"would be updated: {counted(new, 'new file')}, {changed} changed")
        return None

    def _extract(self, agg: Aggregation | None, output: dict[str, Any]) -> None:
        """Write an extract, or a reduction."""
        path, reduction = output["path"], output.get("reduction")
        step = "extract" if reduction is None else "reduce"
        how: dict[str, Any] = {name: output.get(name) for name in ("compress", "chunks", "shards", "reduction")}
        how["append"] = output.get("append", False)
        foresee = partial(self._foresee, step, path, partial(ExtractTarget(path, "").check, "update"))
        if agg is None:
            return foresee()
        arrays, left_out = self._selected(agg, output), list[str]()
        if reduction is not None:
            arrays, left_out = reduced_arrays(arrays, reduction, bool(output["variables"]))
        if self.dry:
            return foresee(is_extracted(arrays, path, **how))
        line = f"aggarray run {shlex.quote(self.job.path)}"
        how |= {"exists": "update", "aggregation": agg, "command": line}
        done = extract(arrays, path, **how, progress=progress_bar())
        shapes = shapes_of(arrays) if reduction is None else shapes_in(path, arrays, reduction)
        without = f"; left out: {', '.join(left_out)}" if left_out and not done.unchanged else ""
        self.note(step, path, describe_output(done, shapes).partition(": ")[2] + without)

    def _selected(self, agg: Aggregation, output: dict[str, Any]) -> list[MasterArray]:
        names = output["variables"]
        absent = [name for name in names if name not in agg]
        if absent:
            raise NotFoundError(
                f"no variable {absent[0]!r}", variable=absent[0], hint=f"the variables are: {', '.join(agg.names) or 'none'}"
            )
        chosen = [a for a in select_where(agg, output["where"], "where") if not names or a.name in names]
        dataset = converted(require_dataset(chosen, bool(names), as_keys, agg.refusals), output.get("units", {}))
        dataset = views_of(dataset, output["forecast"])
        return _labels.select_all(dataset, output["sel"], output.get("method"), output["tolerance"])

    def _page(self, agg: Aggregation | None, output: dict[str, Any]) -> None:
        path = output["path"]
        foresee = partial(self._foresee, "page", path, partial(report.is_up_to_date, "", path))
        if agg is None:
            return foresee()
        source = None if agg._provenance.saved else self.job.source
        text = report.page(select_where(agg, output["where"], "where"), output.get("title"), source=source)
        if self.dry:
            return foresee(report.is_up_to_date(text, path))
        self.note("page", path, "written" if report.write(text, path) else "unchanged")

    def _foresee(self, step: str, path: str, check: Callable[[], Any], unchanged: bool | None = None) -> None:
        """Print what a run would do; ``check`` raises the error of writing.

        ``unchanged``: whether the output is up to date; None: that depends on an index that is not.
        """
        if unchanged:
            return self.note(step, path, "unchanged")
        check()
        is_sure = unchanged is False or not os.path.lexists(path)
        self.note(step, path, "would be written" if is_sure else "would be written if its input has changed")

    def _check(self, agg: Aggregation | None) -> None:
        check = self.job.check or {}
        if agg is None or self.dry:
            self.note("check", self.job.path, "would be done")
            return
        result, allowed = agg.check(checksum=check.get("checksum", False)), check.get("allow", [])
        problems = [p for p in result.problems if p.kind not in ([allowed] if isinstance(allowed, str) else allowed)]
        for problem in problems:
            self.note("problem", problem.file or "", f"[{problem.kind}] {problem.message}")
        self.note("check", self.job.path, counted(len(problems), "problem"))
        self.failed = self.failed or bool(problems)


def _append(path: str, line: bytes) -> None:
    """Append a line atomically: a partial line is not accepted as a log."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        # Another user may have made the link.
        # promise: log-dangling-symlink
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "is a dangling symbolic link; remove it", path) from None
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with locked_file(descriptor, path, wait=True):
            size = os.fstat(descriptor).st_size
            # promise: log-partial-line
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # End the partial line of a killed run, or remove it if it is the only one.
                size = size if b"\n" in os.pread(descriptor, 200, 0) else 0
                os.ftruncate(descriptor, size)
                line = b"\n" * bool(size) + line
            try:
                while line:
                    line = line[os.write(descriptor, line) :]
            except OSError:
                # promise: log-line-atomic
                os.ftruncate(descriptor, size)
                raise
    finally:
        os.close(descriptor)


def _opening(job: Job) -> dict[str, Any]:
    """Return the arguments to open the index, such as its allowed files."""
    if job.opening["roots"] is not None or not any(map(is_remote, job.source)):
        return job.opening
    return {**job.opening, "roots": list(near([job.index["path"], *job.source], path_map(job.opening["relocate"])))}


def _joined(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the texts of each attribute, split at commas."""
    return {name: [part.strip() for part in ",".join(items).split(",")] for name, items in texts.items()}


def _stamps(agg: Aggregation) -> dict[str, Any]:
    return {s.uri: s.stamp for s in agg._provenance.structures()}


def _is_same(before: Aggregation, after: Aggregation) -> bool:
    """Return whether two aggregations have the same unchanged files."""
    facts = []
    for agg in (before, after):
        # Also those of indexes of other programs, which are not scanned.
        files = {str(uri) for a in agg for uri in a._matrix.references.uris}
        facts.append((_stamps(agg), agg.skipped, agg.duplicates, len(agg), files, agg._provenance.rules))
    return facts[0] == facts[1]
