"""How is a job carried out? Step by step, each of which looks first whether there is anything to do."""

import datetime
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _labels
from aggarray.cli._common import bar, chosen, counted, distinct, made_rules, open_source
from aggarray.cli._job import Job
from aggarray.errors import AggarrayError

if TYPE_CHECKING:
    from aggarray.arrays import MasterArray
    from aggarray.opening import Aggregation


@dataclass(slots=True)
class Run:
    """A job on its way: ``steps``: what has been done so far, as plain data."""

    job: Job
    dry: bool
    quiet: bool
    steps: list[dict[str, str]] = field(default_factory=list)
    failed: bool = False
    unlogged: bool = False

    def note(self, step: str, path: str, text: str) -> None:
        """Say what was done, on standard output (errors: on standard error) and in the log."""
        from aggarray.display.facts import printable

        line = printable(f"{step} {path}: {text}")
        told = step not in ("start", "end")
        if told:
            self.steps.append({"step": step, "path": path, "done": text})
        if step == "error":
            click.echo(f"aggarray: {line.removeprefix('error ')}", err=True)
        elif told and not self.quiet:
            click.echo(line)
        if self.job.log is not None and not self.dry:
            self._log(self.job.log, line)

    def _log(self, path: str, line: str) -> None:
        """Add a line to the log; where that cannot be, say so once, and go on without: what is to be done matters more."""
        from aggarray.display.facts import printable

        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            _append(path, f"{now} {line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self.unlogged:
                why = f"cannot be written: {error.strerror}; check the folder, its permissions and its space"
                click.echo(printable(f"aggarray: {path}: {why}"), err=True)
            self.failed = self.unlogged = True

    def all_steps(self) -> None:
        """Do everything; what fails keeps nothing else from being done, unless it needs that."""
        from aggarray.scan.discovery import leaving_out

        with leaving_out(self.job.outputs()):
            agg: Any = self._tried("index" if self.job.index else "input", self._aggregation)
        if agg is not None:
            for one in self.job.extracts:
                self._tried(f"extract {one['path']}", partial(self._extract, agg, one))
            for one in self.job.pages:
                self._tried(f"page {one['path']}", partial(self._page, agg, one))
            if self.job.check is not None:
                self._tried("check", partial(self._check, agg))

    def _tried(self, what: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (AggarrayError, click.UsageError, OSError) as error:
            self.failed = True
            text = error.format_message() if isinstance(error, click.UsageError) else str(error)
            # What failed is named by its path, as most errors begin.
            self.note("error", what, text.removeprefix(f"{what.partition(' ')[2]}: "))
            return None

    def _aggregation(self) -> "Aggregation | None":
        """Return what the inputs hold: from the index, which is brought up to date first."""
        from aggarray.storage.locks import unlock

        job = self.job
        if not job.index:
            return open_source(job.source, job.variables, job.opening, job.rules)
        path = job.index["path"]
        if self.dry:
            return self._foreseen(path)
        before = self._stored(path)
        after = before.append(job.source, progress=bar()) if before is not None else None
        if after is None or after._provenance.rules != _rules(job):
            after = open_source(job.source, job.variables, _reaching(job), job.rules)
        how: dict[str, Any] = {"convention": "CF-1.13", "relative": True, "chunk_table": True}
        how |= {name: value for name, value in job.index.items() if name in how}
        if before is not None and _same(before, after) and before._provenance.how == how:
            # promise: job-stale-lock
            unlock(os.path.realpath(path))
            self.note("index", path, "unchanged")
            return before
        after.save(path, **how)
        self.note("index", path, f"saved, {_news(before, after)}")
        # What follows is then the same as in a run that finds the index as it is.
        return open_source([path], (), _reaching(job))

    def _stored(self, path: str) -> "Aggregation | None":
        """Return the index, None where there is none, or one that other variables were kept in."""
        if not os.path.lexists(path):
            return None
        agg = open_source([path], (), _reaching(self.job))
        return agg if agg._provenance.variables == (tuple(self.job.variables) or None) else None

    def _foreseen(self, path: str) -> "Aggregation | None":
        """Say what would become of the index; return it where it would stay as it is."""
        from aggarray.scan.discovery import find_files

        files, before = find_files(self.job.source), self._stored(path)
        if before is None or before._provenance.rules != _rules(self.job):
            self.note("index", path, f"would be made of {counted(len(files), 'file')}")
            return None
        new, changed = _differences(files, before)
        if not new and not changed:
            self.note("index", path, "unchanged")
            return before
        self.note("index", path, f"would be updated: {counted(new, 'new file')}, {changed} changed")
        return None

    def _extract(self, agg: "Aggregation", one: dict[str, Any]) -> None:
        from aggarray.cli.extract import said_of
        from aggarray.export.extract import extract, is_extracted

        found = selected(agg, one)
        if self.dry:
            self.note("extract", one["path"], "unchanged" if is_extracted(found, one["path"]) else "would be written")
            return
        done = extract(found, one["path"], exists="update", progress=bar())
        self.note("extract", one["path"], "unchanged" if done.unchanged else said_of(done, found).partition(": ")[2])

    def _page(self, agg: "Aggregation", one: dict[str, Any]) -> None:
        from aggarray.display import report

        text, path = report.page(agg, one.get("title")), one["path"]
        if self.dry:
            self.note("page", path, "unchanged" if report.is_there(text, path) else "would be written")
            return
        self.note("page", path, "written" if report.write(text, path) else "unchanged")

    def _check(self, agg: "Aggregation") -> None:
        check = self.job.check or {}
        if self.dry:
            self.note("check", self.job.path, "would be done")
            return
        report = agg.check(checksum=check.get("checksum", False))
        allowed = check.get("allow", [])
        allowed = [allowed] if isinstance(allowed, str) else allowed
        problems = [p for p in report.problems if p.kind not in allowed]
        for problem in problems:
            self.note("problem", problem.file or "", f"[{problem.kind}] {problem.message}")
        self.note("check", self.job.path, counted(len(problems), "problem"))
        self.failed = self.failed or bool(problems)


def _append(path: str, line: bytes) -> None:
    """Add a line to a file, all of it or nothing: half a line would not be known as a log again."""
    from aggarray.storage.locks import locked_file

    descriptor = _opened_log(path)
    try:
        with locked_file(descriptor, path, wait=True):
            _append_to(descriptor, line)
    finally:
        os.close(descriptor)


def _opened_log(path: str) -> int:
    """Open a log, or create one; not where a link leads that leads nowhere: another user may have made it."""
    how = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, how)
    except FileNotFoundError:
        # promise: log-dangling-symlink
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "is a link that leads nowhere: remove it", path) from None
        return os.open(path, how | os.O_CREAT | os.O_NOFOLLOW, 0o666)


def _append_to(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    # promise: log-partial-line
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        # The line of a run that was killed: it ends, and goes away where it is all there is.
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


def selected(agg: "Aggregation", one: dict[str, Any]) -> "list[MasterArray]":
    """Return the arrays that an output asks for, by variables, attributes and labels."""
    from aggarray.errors import NotFoundError

    absent = [name for name in one["variables"] if name not in agg]
    if absent:
        raise NotFoundError(f"no variable {absent[0]!r}: there is {', '.join(agg.names) or 'none'}")
    arrays = [a for a in chosen(agg, one["where"]) if not one["variables"] or a.name in one["variables"]]
    return _labels.select_all(distinct(arrays, "by where"), one["sel"], one["near"])


def _reaching(job: Job) -> dict[str, Any]:
    """Return how the index of a job is opened: it may name what the job names, remote files too."""
    from aggarray.index.uris import near, path_map
    from aggarray.storage.remote import is_remote

    if job.opening["roots"] is not None or not any(map(is_remote, job.source)):
        return job.opening
    return {**job.opening, "roots": list(near([job.index["path"], *job.source], path_map(job.opening["relocate"])))}


def _rules(job: Job) -> Any:
    from aggarray.aggregate.rules import Rules

    return made_rules(job.rules) if job.rules else Rules()


def _stamps(agg: "Aggregation") -> dict[str, Any]:
    return {s.uri: s.stamp for s in agg._provenance.structures()}


def _same(before: "Aggregation", after: "Aggregation") -> bool:
    """Tell whether two aggregations are of the same files, unchanged, and the same was left out."""
    told = [(_stamps(a), a.skipped, a.duplicates, len(a), _files(a)) for a in (before, after)]
    return told[0] == told[1] and before._provenance.rules == after._provenance.rules


def _files(agg: "Aggregation") -> set[str]:
    """Return the files that serve the arrays; those of other programs' indexes are known by no scan."""
    return {str(uri) for a in agg for uri in a._matrix.references.uris}


def _news(before: "Aggregation | None", after: "Aggregation") -> str:
    """Say what an index has that it had not."""
    there, now = _stamps(before) if before is not None else {}, _stamps(after)
    new = len(now.keys() - there.keys())
    changed = sum(there[uri] != now[uri] for uri in there.keys() & now.keys())
    return f"{counted(len(after), 'array')} of {counted(len(now), 'file')}: {new} new, {changed} changed"


def _differences(files: Sequence[str], before: "Aggregation") -> tuple[int, int]:
    """Return how many files are new, and how many have changed since."""
    from aggarray.opening.aggregation import _has_changed

    stamps = _stamps(before)
    lost = {s.file for s in before.skipped if s.variable is None}
    new = [f for f in files if f not in stamps and f not in lost]
    return len(new), sum(f in stamps and _has_changed(f, stamps[f]) for f in files)
