"""Job files in TOML: inputs, rules, outputs and checks.

`KEYS` lists the valid keys. Paths are relative to the folder of the job file.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _labels
from aggarray.cli._common import EXTRACT_SUFFIXES
from aggarray.cli._forecast import parse_view
from aggarray.cli._reductions import OPERATIONS, OPTIONS, quantiles_of, reduction_of
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError

if TYPE_CHECKING:
    from aggarray.scan.fixes import Fix

_TEXTS, _LABELS = "a text, or a list of texts", "a table of labels, such as { time = '2000:2010' }"
_LIMITS = "a number, a duration such as '12h', or a table of these by dimension"
_UNITS = "a table of units, such as { tas = 'degC' }"
_SIZES = "a table of sizes, such as { time = 30 }, positive or -1 for all of the dimension"
_WHERE = "a table of values, such as { source_id = ['MIROC6', 'CanESM5'] }"
_DIMENSIONS = "a dimension, a list of dimensions, or true for those of the other operations, else all"
_QUANTILES = "a number from 0 to 1, a text such as '0.9:time', or a list of these"
_MISSING, _METHODS = ("raise", "fill"), ("nearest", "pad", "backfill")

#: Keys of what is written from selected arrays.
_OUTPUT: dict[str, Any] = {
    **{"path": str, "variables": _TEXTS, "where": _WHERE, "sel": _LABELS, "method": _METHODS, "tolerance": _LIMITS},
    **{"forecast": str, "units": _UNITS, "compress": str},
}
#: The keys of each table, with a type, the valid texts, or a text that is checked below. Tables in lists are outputs.
KEYS: dict[str, dict[str, Any]] = {
    "": {
        **{"log": str, "input": dict, "rules": dict, "fix": list, "index": dict, "extract": list, "reduce": list},
        **{"page": list, "check": dict},
    },
    "input": {
        **{"source": _TEXTS, "variables": _TEXTS, "where": _WHERE, "roots": _TEXTS, "relocate": dict},
        **{"missing": _MISSING, "storage": dict, "fixes": _TEXTS},
    },
    "rules": {
        **{"preset": ("cmip", "era5", "forecast"), "along": _TEXTS, "order": dict, "separate_by": _TEXTS, "tolerance": float},
        **{"overlap": str, "holes": str, "coverage": float, "units": dict, "directions": dict, "new_dimension": str},
        **{"versions": str, "trust": str, "forecast_cubes": bool},
    },
    "index": {"path": str, "convention": ("CF-1.13", "CFA-0.4"), "relative": bool, "chunk_table": bool},
    "extract": {**_OUTPUT, "chunks": _SIZES, "shards": _SIZES, "append": bool},
    "reduce": {
        **_OUTPUT,
        **dict.fromkeys(OPERATIONS, _DIMENSIONS),
        **{"quantile": _QUANTILES, "by": str, "weights": str, "skipna": bool, "min_count": int},
    },
    "page": {"path": str, "title": str, "where": _WHERE},
    "check": {"checksum": bool, "allow": _TEXTS},
}
_REQUIRED = {
    "": ("input",),
    "input": ("source",),
    "index": ("path",),
    "extract": ("path",),
    "page": ("path",),
    "reduce": ("path",),
}
#: Keys of paths.
_PATHS = ("source", "path", "log", "roots")
_PROBLEMS = ("missing", "changed", "unreadable", "hole", "gap", "duplicate", "fix")
_TYPE_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "tables such as [[extract]]",
}


@dataclass(frozen=True, slots=True)
class Job:
    """Checked contents of a job file: tables by name, and lists of tables."""

    path: str
    log: str | None
    source: list[str]
    variables: list[str]
    where: dict[str, list[str]]
    opening: dict[str, Any]
    rules: dict[str, Any]
    fixes: tuple[Fix, ...]
    index: dict[str, Any]
    extracts: list[dict[str, Any]]
    reductions: list[dict[str, Any]]
    pages: list[dict[str, Any]]
    check: dict[str, Any] | None

    def outputs(self) -> list[str]:
        """Return the files that the job writes."""
        outputs = [*self.extracts, *self.reductions, *self.pages]
        paths = [self.log, self.index.get("path"), *(output["path"] for output in outputs)]
        return [path for path in paths if path is not None]


def read_job(path: str) -> Job:
    """Read a job file; raises UsageError, in one line, for invalid ones."""
    import tomllib

    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error
    # promise: job-file-depth
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"{path}: not TOML: {error}") from error
    _check_table(path, "", "", tables)
    for name, table in tables.items():
        if isinstance(table, dict):
            _check_table(path, name, name, table)
        for number, output in enumerate(table if KEYS[""][name] is list else (), 1):
            if not isinstance(output, dict):
                raise click.UsageError(f"{path}: {name} is {output!r}; give {_TYPE_NAMES[list]}")
            if name == "fix":
                continue  # checked when it is made
            _check_table(path, name, f"{name} {number}", output)
    job = _job(os.path.abspath(path), tables)
    _check_outputs(path, job)
    return job


def _check_outputs(where: str, job: Job) -> None:
    """Raise UsageError for outputs that fail or would replace a used file."""
    from aggarray.storage.urls import is_remote

    for path in job.outputs():
        if is_remote(path):
            raise click.UsageError(f"{where}: {path}: is remote; give a local path")
    for output in [*job.extracts, *job.reductions]:
        if not output["path"].lower().endswith(EXTRACT_SUFFIXES):
            raise click.UsageError(f"{where}: {output['path']}: no known suffix; give a name that ends with .zarr or .nc")
        _check_storage(where, output)
    taken = {os.path.realpath(job.path): "the job file"}
    local = [name for name in job.source if not is_remote(name) and (os.path.lexists(name) or not glob.has_magic(name))]
    taken |= {os.path.realpath(name): "an input" for name in local}
    for path in job.outputs():
        real = os.path.realpath(path)
        conflicts = [other for other in taken if real == other or other.startswith(f"{real}/")]
        conflicts += [other for other, what in taken.items() if what == "an output" and real.startswith(f"{other}/")]
        if conflicts:
            raise click.UsageError(f"{where}: {path}: overlaps {taken[conflicts[0]]}; give another name")
        taken[real] = "an output"
    _check_not_source(where, job)
    if job.log is not None and not _is_log(job.log):
        raise click.UsageError(f"{where}: log = {job.log!r}: exists and is not a log; give another name, or remove it")


def _check_storage(where: str, output: Mapping[str, Any]) -> None:
    from aggarray.output.chunk_sizes import check_shards
    from aggarray.output.compression import parse_compression

    suffix = os.path.splitext(output["path"])[1].lower()
    try:
        parse_compression(output.get("compress"), suffix)
        check_shards(output.get("shards"), suffix)
    except AggarrayError as error:
        error.path = output["path"]
        raise click.UsageError(f"{where}: {error}") from error


def _check_not_source(where: str, job: Job) -> None:
    """Raise UsageError if an output is an input, except from earlier runs."""
    existing = [path for path in job.outputs() if path != job.log and os.path.lexists(path) and not _is_own_output(job, path)]
    if not existing:
        return
    from aggarray.export.extract.target import check_not_source
    from aggarray.scan.discovery import find_files

    try:
        files = find_files(job.source)
    except AggarrayError:
        return  # the run reports the error of the input
    for path in existing:
        try:
            check_not_source(path, files)
        except AggarrayError as error:
            raise click.UsageError(f"{where}: {error}") from error


def _is_own_output(job: Job, path: str) -> bool:
    """Return whether an existing file is, or may become, an output."""
    from aggarray.display import report
    from aggarray.export.extract.target import stored_fingerprint
    from aggarray.index.saving import may_be_replaced

    if path == job.index.get("path"):
        return may_be_replaced(path)
    if any(output["path"] == path for output in job.pages):
        return report.is_page(path)
    return stored_fingerprint(path) is not None


def _is_log(path: str) -> bool:
    example = b"2000-01-01T00:00:00+00:00 start "
    try:
        with open(path, "rb") as file:
            first = file.readline(200)
        # A killed run may leave a part of its first line.
        # promise: log-recognised
        return re.match(rb"\d{4}-\d\d-\d\dT[\d:.]+\S* \w+ ", first + example[len(first) :]) is not None
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _check_table(path: str, name: str, title: str, table: Mapping[str, Any]) -> None:
    """Raise UsageError for unknown or missing keys, or wrong types."""
    allowed, where = KEYS[name], f"{path}: [{title}]" if title else path
    for key, value in table.items():
        if key not in allowed:
            similar = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {similar[0]!r}? " if similar else ""
            raise click.UsageError(f"{where}: unknown key {key!r}; {hint}the keys are: {', '.join(allowed)}")
        _check_value(f"{where}: {key}", allowed[key], value)
    missing = [key for key in _REQUIRED.get(name, ()) if key not in table]
    if missing:
        raise click.UsageError(f"{where}: {missing[0]!r} is missing; the keys are: {', '.join(allowed)}")
    for old, new in table.get("relocate", {}).items() if name == "input" else ():
        if not isinstance(new, str):
            raise click.UsageError(f"{where}: relocate: {old} = {new!r} is invalid; give a text")
    storage = table.get("storage", {}) if name == "input" else {}
    if any(isinstance(options, dict) and "provider" in options for options in (storage, *storage.values())):
        hint = 'give NAME = { env = "VARIABLE" }, or open the source in Python'
        raise click.UsageError(f"{where}: storage: a job file runs no code, so it has no provider; {hint}")
    for kind in _texts(table.get("allow", [])) if name == "check" else ():
        if kind not in _PROBLEMS:
            raise click.UsageError(f"{where}: allow = {kind!r} is invalid; give some of {', '.join(_PROBLEMS)}")


def _check_value(where: str, expected: Any, value: Any) -> None:
    if expected == _TEXTS:
        fits = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value) and bool(value))
    elif expected == _LABELS:
        fits = isinstance(value, dict) and all(_is_label(v) for v in value.values())
    elif expected == _WHERE:
        fits = isinstance(value, dict) and all(not isinstance(v, dict) and v != [] and _is_label(v) for v in value.values())
    elif expected == _SIZES:
        fits = isinstance(value, dict) and all(type(v) is int and (v > 0 or v == -1) for v in value.values())
    elif expected == _UNITS:
        fits = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    elif expected == _LIMITS:
        limits = value.values() if isinstance(value, dict) else [value]
        fits = all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in limits)
    elif expected == _DIMENSIONS:
        texts = value if isinstance(value, list) else [value]
        fits = value is True or (bool(texts) and all(isinstance(v, str) and v for v in texts))
    elif expected == _QUANTILES:
        fits = all(isinstance(v, str | int | float) for v in (value if isinstance(value, list) else [value])) and value != []
    elif expected is int:
        fits = type(value) is int
    elif isinstance(expected, tuple):
        fits, expected = value in expected, f"one of {', '.join(expected)}"
    elif expected is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = isinstance(value, expected)
    if fits and where.rpartition(" ")[2] in _PATHS and not all(v and "\0" not in v for v in _texts(value)):
        fits, expected = False, "a path"
    if not fits:
        raise click.UsageError(f"{where} = {value!r} is invalid; give {_TYPE_NAMES.get(expected, expected)}")


def _is_label(value: Any) -> bool:
    return not isinstance(value, bool | dict) and (not isinstance(value, list) or all(map(_is_label, value)))


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _where(table: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: [str(v) for v in (value if isinstance(value, list) else [value])] for name, value in table.items()}


def _job(path: str, tables: dict[str, Any]) -> Job:
    folder = os.path.dirname(path)

    def absolute(name: str) -> str:
        return name if "://" in name else os.path.join(folder, os.path.expanduser(name))

    inputs = tables["input"]
    roots, relocate = _texts(inputs.get("roots", [])), inputs.get("relocate", {})
    index = {**tables["index"], "path": absolute(tables["index"]["path"])} if "index" in tables else {}
    extracts = [_extract(path, {**output, "path": absolute(output["path"])}) for output in tables.get("extract", [])]
    reductions = [_reduction(path, _extract(path, {**o, "path": absolute(o["path"])})) for o in tables.get("reduce", [])]
    opening = {"roots": list(map(absolute, roots)) or None, "relocate": relocate or None}
    opening |= {"missing": inputs.get("missing", "raise"), "storage_options": inputs.get("storage")}
    log = absolute(tables["log"]) if "log" in tables else None
    source = [absolute(name) for name in _texts(inputs["source"])]
    rules = {name: _texts(v) if KEYS["rules"][name] == _TEXTS else v for name, v in tables.get("rules", {}).items()}
    pages = [
        {**output, "path": absolute(output["path"]), "where": _where(output.get("where", {}))}
        for output in tables.get("page", [])
    ]
    variables, where = _texts(inputs.get("variables", [])), _where(inputs.get("where", {}))
    files = [absolute(name) if name.endswith(".toml") else name for name in _texts(inputs.get("fixes", []))]
    fixes, check = _fixes(path, files, tables.get("fix", [])), tables.get("check")
    return Job(path, log, source, variables, where, opening, rules, fixes, index, extracts, reductions, pages, check)


def _fixes(path: str, names: list[str], tables: list[dict[str, Any]]) -> tuple[Fix, ...]:
    """Return the fixes of named files, then those of a job."""
    if not names and not tables:
        return ()
    from aggarray.scan.fix_files import collect_fixes, fixes_of

    try:
        return (*collect_fixes(names), *fixes_of({"fix": tables}, path))
    except AggarrayError as error:
        raise click.UsageError(str(error)) from error


def _extract(path: str, output: dict[str, Any]) -> dict[str, Any]:
    labels = {d: _labels.parse_label(v) if isinstance(v, str) else v for d, v in output.get("sel", {}).items()}
    where = _where(output.get("where", {}))
    limit = output.get("tolerance", {})
    limits = [f"{d}={v}" for d, v in limit.items()] if isinstance(limit, dict) else [limit]
    try:
        tolerances, view = _labels.parse_tolerances(output.get("method"), limits), parse_view(output.get("forecast"))
    except click.BadParameter as error:
        key = str(error.param_hint).removeprefix("--")
        raise click.UsageError(f"{path}: {output['path']}: {key}: {error.message}") from error
    return {
        **output,
        "sel": labels,
        "forecast": view,
        "where": where,
        "variables": _texts(output.get("variables", [])),
        "tolerance": tolerances,
    }


def _reduction(path: str, output: dict[str, Any]) -> dict[str, Any]:
    operations: list[tuple[str, Any]] = []
    try:
        for name, value in output.items():
            if name == "quantile":
                operations += quantiles_of(value if isinstance(value, list) else [value], name)
            elif name in OPERATIONS:
                operations.append((name, "" if value is True else value))
        reduction = reduction_of(operations, {name: output.get(name) for name in OPTIONS}, "")
    except click.UsageError as error:
        raise click.UsageError(f"{path}: {output['path']}: {error.message}") from error
    return {**output, "reduction": reduction}
