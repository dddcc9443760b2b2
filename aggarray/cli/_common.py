"""Options, arguments and output shared by commands."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli._completing import variables_of
from aggarray.errors import AggarrayError, NotFoundError

if TYPE_CHECKING:
    from aggarray.arrays import MasterArray
    from aggarray.opening import Aggregation

#: A click decorator, or several in one.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: The suffixes of outputs of `extract`.
EXTRACT_SUFFIXES = (".zarr", ".nc", ".nc4")

#: Options of many commands.
json_option = click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")
source_argument = click.argument("source", nargs=-1, required=True, type=click.Path())
variables_option = click.option(
    "-v",
    "--variable",
    "variables",
    multiple=True,
    metavar="NAME",
    help="Keep only this variable (repeatable).",
    shell_complete=variables_of,
)
variable_option = click.option(
    "-v", "--variable", metavar="NAME", help="The variable; optional if there is only one.", shell_complete=variables_of
)
where_option = click.option(
    "--where", multiple=True, metavar="NAME=VALUE", help="Keep only arrays with this attribute, such as source_id=MIROC6."
)

_OPENING = (
    click.option("--root", "roots", multiple=True, type=click.Path(), help="Read only files in this folder (repeatable)."),
    click.option("--relocate", multiple=True, metavar="OLD=NEW", help="Look for files of an index below NEW instead of OLD."),
    click.option("--fill-missing", is_flag=True, help="Read missing files as missing values."),
    click.option("--storage", multiple=True, metavar="NAME=VALUE", help="An option for remote files, such as anon=true."),
)
_RULES = (
    click.option("--preset", type=click.Choice(["cmip", "era5"]), help="Start from the rules for such an archive."),
    click.option("--along", multiple=True, metavar="DIM", help="Join along this dimension only (repeatable)."),
    click.option("--order", multiple=True, metavar="DIM=given|name", help="Join along a dimension without coordinate."),
    click.option("--new-dimension", metavar="NAME[=REGEX]", help="Make a dimension of an attribute, or of part of the path."),
    click.option("--separate-by", multiple=True, metavar="ATTRIBUTE", help="Do not join across this attribute (repeatable)."),
    click.option("--overlap", type=click.Choice(["refuse", "first", "last"]), help="Which file provides overlapping regions."),
    click.option("--holes", type=click.Choice(["fill", "refuse"]), help="Whether to fill regions that no file covers."),
    click.option("--tolerance", type=float, metavar="FRACTION", help="Compare coordinates within this fraction of a step."),
    click.option("--units", multiple=True, metavar="NAME=UNITS", help="Convert a variable to these units (repeatable)."),
    click.option("--trust", type=click.Choice(["verify", "assume"]), help="Read the structure of every file, or of a few."),
)


def opening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options of reading; the command gets them as ``opening``, arguments of `aggarray.open`."""

    def packed(
        roots: tuple[str, ...], relocate: tuple[str, ...], fill_missing: bool, storage: tuple[str, ...]
    ) -> dict[str, Any]:
        prefixes = pairs(relocate, "--relocate", "OLD=NEW")
        options = {name: _value(text) for name, text in pairs(storage, "--storage", "NAME=VALUE").items()}
        missing = "fill" if fill_missing else "raise"
        sources = {"roots": list(roots) or None, "relocate": prefixes or None}
        return {**sources, "missing": missing, "storage_options": options or None}

    return _packing(_OPENING, "opening", packed)(command)


def _value(text: str) -> Any:
    """Return the value of JSON text (true, 3, {"a": 1}), other text unchanged."""
    try:
        return json.loads(text)
    # promise: storage-option-depth
    except (ValueError, RecursionError):
        return text


def rules_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options of joining; the command gets them as ``rules``, fields of `Rules`."""

    def packed(**fields: Any) -> dict[str, Any]:
        for name, form in (("order", "DIM=given or DIM=name"), ("units", "NAME=UNITS")):
            fields[name] = pairs(fields[name], f"--{name}", form)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v or v == 0}

    return _packing(_RULES, "rules", packed)(command)


def _packing(options: Sequence[Decorator], name: str, packed: Callable[..., Any]) -> Decorator:
    """Return a decorator that adds options and passes them to the command as one argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> Any:
            own = {key: arguments.pop(key) for key in keys}
            return command(**arguments, **{name: packed(**own)})

        before = len(getattr(command, "__click_params__", []))
        decorated: Callable[..., Any] = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        keys = [option.name for option in decorated.__click_params__[before:]]  # type: ignore[attr-defined]
        return decorated

    return decorate


@contextlib.contextmanager
def protected_sources(output: str, source: Sequence[str], agg: "Aggregation") -> Iterator[None]:
    """Raise UsageError instead of an error about an output that is one of the source files."""
    from aggarray.errors import AggregationError

    try:
        yield
    except AggarrayError as error:
        try:
            check_output(output, source, agg)
        except AggregationError as is_source:
            raise click.UsageError(str(is_source)) from error
        raise


def check_output(output: str, source: Sequence[str], agg: "Aggregation") -> None:
    """Raise AggregationError if the output would replace a source file, even one that was not read."""
    from aggarray.export.extract.target import check_not_source
    from aggarray.formats import given_path
    from aggarray.scan.discovery import named_files

    check_not_source(output, named_files(list(map(given_path, source))))
    if os.path.lexists(output):
        files = {str(uri) for array in agg for uri in array._matrix.references.uris}
        check_not_source(output, files | {s.file for s in agg.skipped} | {d.file for d in agg.duplicates})


def pairs(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    """Return texts NAME=VALUE as a mapping; raises BadParameter, with the expected form, for others."""
    mapping = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r} is not of the form {form}", param_hint=option)
        mapping[name] = value
    return mapping


def open_source(
    source: Sequence[str],
    variables: Sequence[str] = (),
    opening: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> "Aggregation":
    """Open a source as `aggarray.open` does, with a progress bar on a terminal."""
    # Heavy modules are imported here, so that --help is fast.
    from aggarray.opening import open

    arguments = dict(opening or {})
    if rules:
        arguments["rules"] = make_rules(rules)
    return open(list(source), variables=list(variables) or None, progress=progress_bar(), **arguments)


def make_rules(fields: Mapping[str, Any]) -> Any:
    """Return `Rules` of a preset with changed fields; raises UsageError for invalid values."""
    from dataclasses import replace

    from aggarray.aggregate.rules import Rules

    presets = {"cmip": Rules.cmip, "era5": Rules.era5}
    preset = fields.get("preset")
    try:
        rules = presets[preset]() if preset else Rules()
        return replace(rules, **{name: value for name, value in fields.items() if name != "preset"})
    except AggarrayError as error:
        raise click.UsageError(str(error)) from error


def select_where(agg: "Aggregation", where: Mapping[str, str]) -> "Aggregation":
    """Return the arrays with these attributes, compared as text; raises NotFoundError if there are none."""
    for name, text in where.items():
        arrays = tuple(a for a in agg if text in (str(a.attrs.get(name)), str(a.file_attrs.get(name))))
        values = sorted({str(a.attrs.get(name, a.file_attrs.get(name))) for a in agg})
        if not arrays:
            raise NotFoundError(f"--where {name}={text}: no such array", hint=f"{name} is {', '.join(values[:8])}")
        from dataclasses import replace

        agg = replace(agg, arrays=arrays)
    return agg


def require_distinct(arrays: "Sequence[MasterArray]", by: str) -> "list[MasterArray]":
    """Return arrays with distinct names; raises AggregationError, with the advice ``by``, if names repeat."""
    from aggarray.errors import AggregationError
    from aggarray.opening.aggregation import distinguishing_text

    for name in dict.fromkeys(a.name for a in arrays):
        same = [a for a in arrays if a.name == name]
        if len(same) > 1:
            what = f"{len(same)} arrays are named {name!r}: {distinguishing_text(same)}"
            raise AggregationError(what, hint=f"choose one {by}")
    return list(arrays)


def only_array(agg: "Aggregation", variable: str | None) -> "MasterArray":
    """Return the array of a name, or the only one; raises UsageError if there are several."""
    if variable is None and len(agg) != 1:
        raise click.UsageError(f"there are several variables ({', '.join(agg.names)}); choose one by -v")
    return agg[variable or agg.names[0]]


def progress_bar() -> bool | None:
    """Return the argument ``progress``: a bar on a terminal only."""
    return True if sys.stderr is not None and sys.stderr.isatty() else None


def echo_json(data: Any) -> None:
    """Print data as JSON."""
    click.echo(json.dumps(data, indent=2))


def save(agg: "Aggregation", path: str, as_json: bool, **options: Any) -> None:
    """Save an index, and print its contents and the parts that other software cannot read."""
    from aggarray.display import facts

    report = agg.save(path, **options)
    if as_json:
        echo_json({"index": path, "arrays": facts.aggregation_facts(agg), "problems": facts.problem_facts(report)})
        return
    click.echo(facts.printable(f"{path}: {counted(len(agg), 'array')} of {counted(facts.file_count(agg), 'file')}"))
    for problem in report.problems:
        click.echo(facts.printable(f"readable by aggarray only: {problem.message}"), err=True)
    echo_notes(agg, f"run aggarray explain {path} for the reasons")


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(0, "file")
    ('1 file', '0 files')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def echo_notes(agg: "Aggregation", hint: str) -> None:
    """Print the numbers of refusals and skipped files to standard error."""
    counts = [f"arrays not joined: {len(agg.refusals)}"] if agg.refusals else []
    counts += [f"files or variables skipped: {len(agg.skipped)}"] if agg.skipped else []
    if counts:
        click.echo(f"{', '.join(counts)}; {hint}", err=True)
