"""What does a job file ask for? Inputs, rules, outputs and checks, in TOML; whatever is not understood is an error.

`KEYS` is the table of what may be said. Paths count from the folder of the job file.
"""

import difflib
import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from aggarray.cli import _labels
from aggarray.cli._common import EXTRACTED
from aggarray.errors import AggarrayError

_TEXTS, _LABELS = "a text, or a list of texts", "a table of labels, such as { time = '2000:2010' }"
_LIMITS = "a number, a duration such as '12h', or a table of these by dimension"

#: Table by table, what its keys hold: a type, several, or words for what is checked below. Tables in lists are outputs.
KEYS: dict[str, dict[str, Any]] = {
    "": {"log": str, "input": dict, "rules": dict, "index": dict, "extract": list, "page": list, "check": dict},
    "input": {"source": _TEXTS, "variables": _TEXTS, "roots": _TEXTS, "relocate": dict, "missing": str, "storage": dict},
    "rules": {
        **{"preset": str, "along": _TEXTS, "order": dict, "separate_by": _TEXTS, "tolerance": float, "overlap": str},
        **{"holes": str, "coverage": float, "units": dict, "directions": dict, "new_dimension": str, "versions": str},
        "trust": str,
    },
    "index": {"path": str, "convention": str, "relative": bool, "chunk_table": bool},
    "extract": {
        **{"path": str, "variables": _TEXTS, "sel": _LABELS, "method": str, "tolerance": _LIMITS},
        "where": dict,
    },
    "page": {"path": str, "title": str},
    "check": {"checksum": bool, "allow": _TEXTS},
}
_NEEDED = {"": ("input",), "input": ("source",), "index": ("path",), "extract": ("path",), "page": ("path",)}
_CHOICES = {
    ("input", "missing"): ("raise", "fill"),
    ("rules", "preset"): ("cmip", "era5"),
    ("index", "convention"): ("CF-1.13", "CFA-0.4"),
    ("extract", "method"): ("nearest", "pad", "backfill"),
}
#: Keys that hold paths.
_PATHS = ("source", "path", "log", "roots")
_KINDS = ("missing", "changed", "unreadable", "hole", "gap", "duplicate")
_WORDS = {str: "a text", bool: "true or false", float: "a number", dict: "a table", list: "tables such as [[extract]]"}


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its file states it, checked: tables by name; ``extracts``, ``pages``: under [[extract]] and [[page]]."""

    path: str
    log: str | None
    source: list[str]
    variables: list[str]
    opening: dict[str, Any]
    rules: dict[str, Any]
    index: dict[str, Any]
    extracts: list[dict[str, Any]] = field(default_factory=list)
    pages: list[dict[str, Any]] = field(default_factory=list)
    check: dict[str, Any] | None = None

    def outputs(self) -> list[str]:
        """Return the files that the job writes."""
        named = [self.log, self.index.get("path"), *(one["path"] for one in [*self.extracts, *self.pages])]
        return [path for path in named if path is not None]


def is_remote(name: str) -> bool:
    """Tell whether a name is an address; what is heavy is loaded when a job is read."""
    from aggarray.storage import remote

    return remote.is_remote(name)


def has_magic(name: str) -> bool:
    """Tell whether a name is a pattern, rather than what is there."""
    return glob.has_magic(name) and not os.path.lexists(name)


def read_job(path: str) -> Job:
    """Read a job file. UsageError, in one line, for one that cannot be read or says what has no meaning."""
    import tomllib

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error
    # promise: job-file-depth
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"{path}: no TOML: {error}") from error
    _check_table(path, "", "", found)
    for name, table in found.items():
        if isinstance(table, dict):
            _check_table(path, name, name, table)
        for number, one in enumerate(table if KEYS[""][name] is list else (), 1):
            if not isinstance(one, dict):
                raise click.UsageError(f"{path}: {name}: {one!r}: give {_WORDS[list]}")
            _check_table(path, name, f"{name} {number}", one)
    job = _job(os.path.abspath(path), found)
    _check_outputs(path, job)
    return job


def _check_outputs(where: str, job: Job) -> None:
    """Raise UsageError for outputs that cannot be written, or that would replace each other, the job, its log or its input."""
    for path in job.outputs():
        if is_remote(path):
            raise click.UsageError(f"{where}: {path}: is remote: write to a local path")
    for one in job.extracts:
        if not one["path"].lower().endswith(EXTRACTED):
            raise click.UsageError(
                f"{where}: {one['path']}: give a name that ends with .zarr or .nc: it decides what is written"
            )
    taken = {os.path.realpath(job.path): "the job file"}
    taken |= {os.path.realpath(name): "an input" for name in job.source if not is_remote(name) and not has_magic(name)}
    for path in job.outputs():
        real = os.path.realpath(path)
        near = [other for other in taken if real == other or other.startswith(f"{real}/")]
        near += [other for other, what in taken.items() if what == "an output" and real.startswith(f"{other}/")]
        if near:
            raise click.UsageError(f"{where}: {path}: is, or holds, or lies in, {taken[near[0]]}: give another name")
        taken[real] = "an output"
    _check_not_read(where, job)
    if job.log is not None and not _may_log(job.log):
        raise click.UsageError(f"{where}: log = {job.log!r}: there is something else: give another name, or remove it")


def _check_not_read(where: str, job: Job) -> None:
    """Raise UsageError for an output that is a file of the input, by whatever name; what an earlier run has made is none."""
    there = [path for path in job.outputs() if path != job.log and os.path.lexists(path) and not _was_made(job, path)]
    if not there:
        return
    from aggarray.export.extract.target import check_not_source
    from aggarray.scan.discovery import find_files

    try:
        files = find_files(job.source)
    except AggarrayError:
        return  # the run says what is wrong with it
    for path in there:
        try:
            check_not_source(path, files)
        except AggarrayError as error:
            raise click.UsageError(f"{where}: {error}") from error


def _was_made(job: Job, path: str) -> bool:
    """Tell whether what is there is what a job writes under the name, or can be replaced by it."""
    from aggarray.display import report
    from aggarray.export.extract.target import stored_fingerprint
    from aggarray.index import may_be_replaced

    if path == job.index.get("path"):
        return may_be_replaced(path)
    if any(one["path"] == path for one in job.pages):
        return report.is_page(path)
    return stored_fingerprint(path) is not None


def _may_log(path: str) -> bool:
    """Tell whether there is a log, the beginning of one, an empty file or nothing; what else is wrong, writing says."""
    begun = b"2000-01-01T00:00:00+00:00 start "
    try:
        with open(path, "rb") as file:
            first = file.readline(200)
        # A run that was killed may have left a part of its first line.
        # promise: log-recognised
        return re.match(rb"\d{4}-\d\d-\d\dT[\d:.]+\S* \w+ ", first + begun[len(first) :]) is not None
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _check_table(path: str, kind: str, place: str, table: Mapping[str, Any]) -> None:
    """Raise UsageError for a key that there is not, or lacks, or whose value is of a wrong kind."""
    allowed, where = KEYS[kind], f"{path}: [{place}]" if place else path
    for key, value in table.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise click.UsageError(f"{where}: unknown key {key!r}: {hint}there are {', '.join(allowed)}")
        _check_value(f"{where}: {key}", allowed[key], value)
        choices = _CHOICES.get((kind, key), ())
        if choices and value not in choices:
            raise click.UsageError(f"{where}: {key} = {value!r}: give one of {', '.join(choices)}")
    missing = [key for key in _NEEDED.get(kind, ()) if key not in table]
    if missing:
        raise click.UsageError(f"{where}: {missing[0]!r} is missing: there are {', '.join(allowed)}")
    odd = [old for old, new in table.get("relocate", {}).items() if not isinstance(new, str)] if kind == "input" else []
    if odd:
        raise click.UsageError(f"{where}: relocate: {odd[0]} = {table['relocate'][odd[0]]!r}: give a text")
    unknown = [kind for kind in _texts(table.get("allow", [])) if kind not in _KINDS] if kind == "check" else []
    if unknown:
        raise click.UsageError(f"{where}: allow = {unknown[0]!r}: give some of {', '.join(_KINDS)}")


def _check_value(where: str, wanted: Any, value: Any) -> None:
    if wanted == _TEXTS:
        fits = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value) and bool(value))
    elif wanted == _LABELS:
        fits = isinstance(value, dict) and all(_is_label(v) for v in value.values())
    elif wanted == _LIMITS:
        limits = value.values() if isinstance(value, dict) else [value]
        fits = all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in limits)
    elif wanted is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = isinstance(value, wanted)
    if fits and where.rpartition(" ")[2] in _PATHS and not all(v and "\0" not in v for v in _texts(value)):
        fits, wanted = False, "a path"
    if not fits:
        raise click.UsageError(f"{where} = {value!r}: give {_WORDS.get(wanted, wanted)}")


def _is_label(value: Any) -> bool:
    return not isinstance(value, bool | dict) and (not isinstance(value, list) or all(map(_is_label, value)))


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _job(path: str, found: dict[str, Any]) -> Job:
    """Return what a checked file says, its paths made absolute."""
    folder = os.path.dirname(path)

    def here(name: str) -> str:
        return name if "://" in name else os.path.join(folder, os.path.expanduser(name))

    given = found["input"]
    roots, relocate = _texts(given.get("roots", [])), given.get("relocate", {})
    index = {**found["index"], "path": here(found["index"]["path"])} if "index" in found else {}
    extracts = [_extract(path, {**one, "path": here(one["path"])}) for one in found.get("extract", [])]
    opening = {"roots": list(map(here, roots)) or None, "relocate": relocate or None, "missing": given.get("missing", "raise")}
    opening["storage_options"] = given.get("storage")
    log = here(found["log"]) if "log" in found else None
    source = [here(name) for name in _texts(given["source"])]
    rules = {name: _texts(v) if KEYS["rules"][name] == _TEXTS else v for name, v in found.get("rules", {}).items()}
    pages = [{**one, "path": here(one["path"])} for one in found.get("page", [])]
    return Job(
        path, log, source, _texts(given.get("variables", [])), opening, rules, index, extracts, pages, found.get("check")
    )


def _extract(path: str, one: dict[str, Any]) -> dict[str, Any]:
    """Return what one extract asks for: labels as `sel` takes them."""
    labels = {d: _labels.label_of(v) if isinstance(v, str) else v for d, v in one.get("sel", {}).items()}
    where = {name: str(value) for name, value in one.get("where", {}).items()}
    limit = one.get("tolerance", {})
    limits = [f"{d}={v}" for d, v in limit.items()] if isinstance(limit, dict) else [limit]
    try:
        near = _labels.near_of(one.get("method"), limits)
    except click.BadParameter as error:
        raise click.UsageError(f"{path}: {one['path']}: tolerance: {error.message}") from error
    return {**one, "sel": labels, "where": where, "variables": _texts(one.get("variables", [])), "near": near}
