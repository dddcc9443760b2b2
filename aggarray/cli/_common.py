"""What do commands have in common? Options, opening a source, and what they say of it beside the facts."""

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

#: How the names of what `extract` writes end.
EXTRACTED = (".zarr", ".nc", ".nc4")

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
    "-v",
    "--variable",
    metavar="NAME",
    help="The variable; may be left out where there is one only.",
    shell_complete=variables_of,
)
where_option = click.option(
    "--where", multiple=True, metavar="NAME=VALUE", help="Keep only arrays with this attribute, such as source_id=MIROC6."
)

_OPENING = (
    click.option("--root", "roots", multiple=True, type=click.Path(), help="Read files of this folder alone (repeatable)."),
    click.option("--relocate", multiple=True, metavar="OLD=NEW", help="Files that an index has below OLD are below NEW now."),
    click.option("--fill-missing", is_flag=True, help="Files that are gone read as missing values."),
    click.option("--storage", multiple=True, metavar="NAME=VALUE", help="An option for remote files, such as anon=true."),
)
_RULES = (
    click.option("--preset", type=click.Choice(["cmip", "era5"]), help="Rules that suit such an archive, to start from."),
    click.option("--along", multiple=True, metavar="DIM", help="Join along this dimension only (repeatable)."),
    click.option("--order", multiple=True, metavar="DIM=given|name", help="Join along a dimension without coordinate."),
    click.option("--new-dimension", metavar="NAME[=REGEX]", help="Make a dimension of an attribute, or of part of the path."),
    click.option("--separate-by", multiple=True, metavar="ATTRIBUTE", help="Attributes that keep arrays apart (repeatable)."),
    click.option("--overlap", type=click.Choice(["refuse", "first", "last"]), help="Who serves what several files cover."),
    click.option("--holes", type=click.Choice(["fill", "refuse"]), help="May there be places that no file covers?"),
    click.option("--tolerance", type=float, metavar="FRACTION", help="Coordinates are equal within this part of a step."),
    click.option("--units", multiple=True, metavar="NAME=UNITS", help="The units wanted of a variable (repeatable)."),
    click.option("--trust", type=click.Choice(["verify", "assume"]), help="Read the structure of every file, or of a few."),
)


def opening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options about which files are read; they reach the command as ``opening``, arguments of `aggarray.open`."""

    def packed(
        roots: tuple[str, ...], relocate: tuple[str, ...], fill_missing: bool, storage: tuple[str, ...]
    ) -> dict[str, Any]:
        moves = pairs(relocate, "--relocate", "OLD=NEW")
        wanted = {name: _value(text) for name, text in pairs(storage, "--storage", "NAME=VALUE").items()}
        missing = "fill" if fill_missing else "raise"
        return {"roots": list(roots) or None, "relocate": moves or None, "missing": missing, "storage_options": wanted or None}

    return _packing(_OPENING, "opening", packed)(command)


def _value(text: str) -> Any:
    """Return a value written as JSON (true, 3, {"a": 1}), anything else as the text it is."""
    try:
        return json.loads(text)
    # promise: storage-option-depth
    except (ValueError, RecursionError):
        return text


def rules_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options about how files are joined; they reach the command as ``rules``, fields of `Rules`."""

    def packed(**given: Any) -> dict[str, Any]:
        for name, text in (("order", "DIM=given or DIM=name"), ("units", "NAME=UNITS")):
            given[name] = pairs(given[name], f"--{name}", text)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v or v == 0}

    return _packing(_RULES, "rules", packed)(command)


def _packing(options: Sequence[Decorator], name: str, packed: Callable[..., Any]) -> Decorator:
    """Return a decorator that adds options and hands them on as one argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> Any:
            own = {key: arguments.pop(key) for key in keys}
            return command(**arguments, **{name: packed(**own)})

        known = len(getattr(command, "__click_params__", []))
        made: Callable[..., Any] = wrapper
        for option in reversed(options):
            made = option(made)
        keys = [option.name for option in made.__click_params__[known:]]  # type: ignore[attr-defined]
        return made

    return decorate


@contextlib.contextmanager
def sparing(output: str, source: Sequence[str], agg: "Aggregation") -> Iterator[None]:
    """Turn an error over an output into UsageError where that is one of the files that SOURCE holds."""
    from aggarray.errors import AggregationError

    try:
        yield
    except AggarrayError as error:
        try:
            check_output(output, source, agg)
        except AggregationError as wrong:
            raise click.UsageError(str(wrong)) from error
        raise


def check_output(output: str, source: Sequence[str], agg: "Aggregation") -> None:
    """Raise AggregationError where the output would replace what SOURCE names, of which only a part may be read."""
    from aggarray.export.extract.target import check_not_source
    from aggarray.formats import given_path
    from aggarray.scan.discovery import named_files

    check_not_source(output, named_files(list(map(given_path, source))))
    if os.path.lexists(output):
        files = {str(uri) for array in agg for uri in array._matrix.references.uris}
        check_not_source(output, files | {s.file for s in agg.skipped} | {d.file for d in agg.duplicates})


def pairs(texts: Sequence[str], option: str, wanted: str) -> dict[str, str]:
    """Return texts NAME=VALUE as a mapping; BadParameter for others."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r}: give {wanted}", param_hint=option)
        found[name] = value
    return found


def open_source(
    source: Sequence[str],
    variables: Sequence[str] = (),
    opening: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> "Aggregation":
    """Open a source as `aggarray.open` does, with a bar on a terminal."""
    # The package's heavy parts load only here, so that --help answers at once.
    from aggarray.opening import open

    how = dict(opening or {})
    if rules:
        how["rules"] = made_rules(rules)
    return open(list(source), variables=list(variables) or None, progress=bar(), **how)


def made_rules(given: Mapping[str, Any]) -> Any:
    """Return `Rules` of a preset with some fields changed; UsageError for what makes no sense."""
    from dataclasses import replace

    from aggarray.aggregate.rules import Rules

    presets = {"cmip": Rules.cmip, "era5": Rules.era5}
    preset = given.get("preset")
    try:
        start = presets[preset]() if preset else Rules()
        return replace(start, **{name: value for name, value in given.items() if name != "preset"})
    except AggarrayError as error:
        raise click.UsageError(str(error)) from error


def chosen(agg: "Aggregation", where: Mapping[str, str]) -> "Aggregation":
    """Return the arrays that have these attributes, given as text; NotFoundError where there are none."""
    for name, text in where.items():
        kept = tuple(a for a in agg if text in (str(a.attrs.get(name)), str(a.file_attrs.get(name))))
        values = sorted({str(a.attrs.get(name, a.file_attrs.get(name))) for a in agg})
        if not kept:
            raise NotFoundError(f"--where {name}={text}: {name} is {', '.join(values[:8])}")
        from dataclasses import replace

        agg = replace(agg, arrays=kept)
    return agg


def distinct(arrays: "Sequence[MasterArray]", how: str) -> "list[MasterArray]":
    """Return arrays of which no two have one name; AggregationError says ``how`` to choose among those that have."""
    from aggarray.errors import AggregationError
    from aggarray.opening.aggregation import distinguishing_text

    for name in dict.fromkeys(a.name for a in arrays):
        same = [a for a in arrays if a.name == name]
        if len(same) > 1:
            raise AggregationError(f"{len(same)} arrays are named {name!r}: choose one {how}; {distinguishing_text(same)}")
    return list(arrays)


def only_array(agg: "Aggregation", variable: str | None) -> "MasterArray":
    """Return the array of a name, or the only one there is; UsageError asks which."""
    if variable is None and len(agg) != 1:
        raise click.UsageError(f"several variables ({', '.join(agg.names)}): choose one by -v")
    return agg[variable or agg.names[0]]


def bar() -> bool | None:
    """Return the argument ``progress``: a bar on a terminal, none elsewhere."""
    return True if sys.stderr is not None and sys.stderr.isatty() else None


def echo_json(found: Any) -> None:
    """Print facts as data."""
    click.echo(json.dumps(found, indent=2))


def save(agg: "Aggregation", path: str, as_json: bool, **how: Any) -> None:
    """Save an index, and say what is in it and what other software will not see."""
    from aggarray.display import facts

    report = agg.save(path, **how)
    if as_json:
        echo_json({"index": path, "arrays": facts.aggregation_facts(agg), "problems": facts.problem_facts(report)})
        return
    click.echo(facts.printable(f"{path}: {counted(len(agg), 'array')} of {counted(facts.file_count(agg), 'file')}"))
    for problem in report.problems:
        click.echo(facts.printable(f"for aggarray alone: {problem.message}"), err=True)
    notes(agg, f"aggarray explain {path} says why")


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "file"), counted(0, "file")
    ('1 file', '0 files')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def notes(agg: "Aggregation", hint: str) -> None:
    """Tell on standard error that there is more to know."""
    counts = [f"arrays that stayed apart: {len(agg.refusals)}"] if agg.refusals else []
    counts += [f"files or variables skipped: {len(agg.skipped)}"] if agg.skipped else []
    if counts:
        click.echo(f"{', '.join(counts)} ({hint})", err=True)
