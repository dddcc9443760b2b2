"""Options, arguments, completion and output shared by commands."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aggarray.errors import AggarrayError, AggregationError, without_credentials

if TYPE_CHECKING:
    from aggarray.aggregate.report import Problem, Report
    from aggarray.aggregate.rules import Rules
    from aggarray.arrays.master import MasterArray
    from aggarray.layout.profiles import Profile
    from aggarray.opening.aggregation import Aggregation

#: The suffixes of outputs of `extract`.
EXTRACT_SUFFIXES = (".zarr", ".nc", ".nc4")


def variables_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of variables with a prefix, for completion."""
    agg = _opened(ctx)
    # promise: completion-safe-names
    return [] if agg is None else sorted(n for n in agg.names if n.startswith(incomplete) and _is_plain(n))


def dimensions_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return completions ``NAME=`` of the dimensions with a prefix."""
    chosen = ctx.params.get("variables") or ()
    names = {d for a in _opened(ctx) or () if not chosen or a.name in chosen for d in a.dimensions if _is_plain(d)}
    return sorted(f"{n}=" for n in names if f"{n}=".startswith(incomplete))


def _is_plain(name: str) -> bool:
    """Return whether a name from a file is safe on a shell line.

    >>> _is_plain("tas_2m.mean"), _is_plain("$(reboot)"), _is_plain("a b")
    (True, False, False)
    """
    return all(c.isalnum() or c in "_-.+/@%:," for c in name)


def _opened(ctx: click.Context) -> Aggregation | None:
    """Return the aggregation on the line, None unless it opens fast."""
    from aggarray.opening.sources import open

    # An option without a value stops the parser before it assigns the arguments.
    source: list[Any] = [*(ctx.params.get("source") or ctx.args)]
    if len(source) == 1 and os.path.isfile(source[0]):
        with contextlib.suppress(AggarrayError, OSError):
            return open(source, processes=1)
    return None


def all_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that adds options to a command."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
source_argument = click.argument("source", nargs=-1, required=True, type=click.Path())
_KEEP, _CHOOSE = "Keep only this variable (repeatable).", "The variable; optional if there is only one."
variables_option = click.option(
    "-v", "--variable", "variables", multiple=True, metavar="NAME", help=_KEEP, shell_complete=variables_of
)
variable_option = click.option("-v", "--variable", metavar="NAME", help=_CHOOSE, shell_complete=variables_of)
_WHERE = "Keep only arrays with this attribute, such as source_id=MIROC6,CanESM5 or 'source_id=MIROC*' (repeatable)."
#: Options of reading.
access_options = all_options(
    click.option("--root", "roots", multiple=True, type=click.Path(), help="Read only files in this folder (repeatable)."),
    click.option(
        "--relocate",
        multiple=True,
        metavar="OLD=NEW",
        help="Look below NEW for the files that an index names below OLD (repeatable).",
    ),
    click.option("--fill-missing", is_flag=True, help="Read missing files as missing values."),
    click.option(
        "--storage",
        multiple=True,
        metavar="NAME=VALUE",
        help="Pass an option for remote files, such as anon=true (repeatable).",
    ),
)
#: Options of opening and reading.
opening_options = all_options(click.option("--where", multiple=True, metavar="NAME=VALUE", help=_WHERE), access_options)
_GROUP = "Print a row per group of these attributes, such as source_id,table_id; 'name' groups by variable."
group_option = click.option(
    "--group-by", multiple=True, metavar="NAME,...", callback=lambda ctx, param, value: split_names(value), help=_GROUP
)
#: Options of joining: fields of `Rules`, and a preset. Labels have another --tolerance.
rules_options_of_labels = all_options(
    click.option("--preset", type=click.Choice(["cmip", "era5", "forecast"]), help="Start from the rules for such an archive."),
    click.option("--along", multiple=True, metavar="DIM", help="Join along this dimension only (repeatable)."),
    click.option(
        "--order",
        multiple=True,
        metavar="DIM=given|name",
        help="Join along a dimension without a coordinate, in the given order or by file name (repeatable).",
    ),
    click.option(
        "--new-dimension",
        metavar="NAME[=REGEX]",
        help="Make a dimension of an attribute, or of the part of the path that REGEX matches.",
    ),
    click.option(
        "--separate-by",
        multiple=True,
        metavar="ATTRIBUTE",
        help="Keep arrays separate that differ in this attribute (repeatable; default: the facets of CMIP).",
    ),
    click.option(
        "--overlap", type=click.Choice(["refuse", "first", "last"]), help="Which file provides regions that several files have."
    ),
    click.option(
        "--holes",
        type=click.Choice(["fill", "refuse"]),
        help="Whether to join arrays if no file covers some regions, which then read as missing values.",
    ),
    click.option("--units", multiple=True, metavar="NAME=UNITS", help="Convert a variable to these units (repeatable)."),
    click.option(
        "--trust",
        type=click.Choice(["verify", "assume"]),
        help="Scan every file, or only a few of each group of similar files.",
    ),
    click.option(
        "--fixes", multiple=True, metavar="FILE.toml|NAME", help="Repair metadata by a file, or known faults (cmip6)."
    ),
)
rules_options = all_options(
    rules_options_of_labels,
    click.option(
        "--tolerance",
        type=float,
        metavar="FRACTION",
        help="Greatest difference between equal coordinates, as a fraction of a step.",
    ),
)
RULES = ("preset", "along", "order", "new_dimension", "separate_by", "overlap", "holes", "tolerance", "units", "trust")


def open_arguments(arguments: Mapping[str, Any], notes: bool = True) -> Aggregation:
    """Open the source of a command; ``notes``: see `open_source`."""
    variables = [arguments["variable"]] if arguments.get("variable") else arguments.get("variables", ())
    rules: dict[str, Any] = {}
    if "preset" in arguments:
        fields = {name: arguments[name] for name in RULES if name in arguments}
        for name, form in (("order", "DIM=given or DIM=name"), ("units", "NAME=UNITS")):
            fields[name] = pairs(fields[name], f"--{name}", form)
        rules = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v or v == 0}
    prefixes = pairs(arguments["relocate"], "--relocate", "OLD=NEW")
    storage = {name: _value(text) for name, text in pairs(arguments["storage"], "--storage", "NAME=VALUE").items()}
    opening: dict[str, Any] = {"missing": "fill" if arguments["fill_missing"] else "raise"}
    opening |= {"roots": list(arguments["roots"]) or None, "relocate": prefixes or None, "storage_options": storage or None}
    opening |= {"fixes": list(arguments["fixes"])} if arguments.get("fixes") else {}
    where = where_texts(arguments.get("where", ()))
    return open_source(arguments["source"], variables, opening, rules, where, notes)


def where_texts(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts of each attribute of options NAME=VALUE.

    >>> where_texts(["table_id=day", "source_id=M1", "source_id=M2"])
    {'table_id': ['day'], 'source_id': ['M1', 'M2']}
    """
    by_name: dict[str, list[str]] = {}
    for text in texts:
        for name, value in pairs([text], "--where", "NAME=VALUE").items():
            by_name.setdefault(name.strip(), []).append(value)
    return by_name


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    # promise: storage-option-depth
    except (ValueError, RecursionError):
        return text


@contextlib.contextmanager
def protected_sources(output: str, source: Sequence[str], agg: Aggregation) -> Iterator[None]:
    """Raise UsageError in place of an error about an output in the source."""
    try:
        yield
    except AggarrayError as error:
        try:
            check_output(output, source, agg)
        except AggregationError as is_source:
            raise click.UsageError(str(is_source)) from error
        raise


def check_output(output: str, source: Sequence[str], agg: Aggregation) -> None:
    """Raise AggregationError if the output would replace a source file."""
    from aggarray.export.extract.target import check_not_source
    from aggarray.storage.files import given_path, named_files

    check_not_source(output, named_files(list(map(given_path, source))))
    if os.path.lexists(output):
        files = {str(uri) for array in agg for uri in array._matrix.references.uris}
        check_not_source(output, files | {s.file for s in agg.skipped} | {d.file for d in agg.duplicates})


def pairs(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    """Return texts NAME=VALUE as a mapping; BadParameter for others, repeats."""
    mapping: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(
                f"{text if option != '--storage' else '...'!r} is not of the form {form}", param_hint=option
            )
        if mapping.setdefault(name, value) != value:
            # Values of --storage may be secrets.
            contradiction = (
                f"{text!r} contradicts {name}={mapping[name]}" if option != "--storage" else f"{name} has two values"
            )
            raise click.BadParameter(contradiction, param_hint=option)
    return mapping


def sizes(texts: Sequence[str], option: str) -> dict[str, int]:
    """Return texts DIM=SIZE,... as a mapping; BadParameter for others.

    >>> sizes(["time=30,lat=90", "lon=-1"], "--chunks")
    {'time': 30, 'lat': 90, 'lon': -1}
    """
    parts = [part.strip() for text in texts for part in text.split(",")]
    mapping = {}
    for name, size in pairs(parts, option, "DIM=SIZE, such as time=30").items():
        try:
            mapping[name.strip()] = int(size)
        except ValueError:
            what = f"{name}={size} is not a size; give a whole number, or -1 for all of the dimension"
            raise click.BadParameter(what, param_hint=option) from None
    return mapping


def open_source(
    source: Sequence[str],
    variables: Sequence[str] = (),
    opening: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    notes: bool = True,
) -> Aggregation:
    """Open a source like `aggarray.open`, with a progress bar on terminals.

    ``where``: texts of attributes; see `aggarray.opening.where`. ``notes``: print which of the given fixes match no file.
    """
    # Heavy modules are imported here, so that --help is fast.
    from aggarray.opening.sources import open

    arguments = dict(opening or {})
    if rules:
        from aggarray.index.recognition import stored_generation

        is_index = len(source) == 1 and "preset" not in rules and stored_generation(source[0]) is not None
        # An index keeps the rules that it was made with, except those given.
        arguments["rules"] = make_rules(rules, open(source[0], **arguments)._provenance.rules if is_index else None)
    agg = open(list(source), variables=list(variables) or None, progress=progress_bar(), **arguments)
    if notes and arguments.get("fixes"):
        from aggarray.cli._notes import echo_unmatched

        echo_unmatched(agg)
    return select_where(agg, where or {})


def select_where(agg: Aggregation, texts: Mapping[str, Sequence[str]], option: str = "--where") -> Aggregation:
    """Return the arrays that attributes select; errors name the option."""
    if not texts:
        return agg
    from aggarray.opening.where import where

    return where(agg, texts, option)


def make_rules(fields: Mapping[str, Any], base: Rules | None = None) -> Any:
    """Return `Rules` of a preset or a base, and fields; UsageError if invalid."""
    from aggarray.aggregate.rules import changed_rules

    try:
        return changed_rules(base, fields.get("preset"), {name: value for name, value in fields.items() if name != "preset"})
    except AggarrayError as error:
        raise click.UsageError(str(error)) from error


def only_array(agg: Aggregation, variable: str | None) -> MasterArray:
    """Return the array of a name, or the only one; UsageError otherwise."""
    if variable is None and len(agg.names) != 1:
        raise click.UsageError(f"the source has several variables ({', '.join(agg.names)}); choose one with -v")
    from aggarray.cli._datasets import require_dataset

    named = [a for a in agg if a.name == variable] if variable else list(agg)
    try:
        return require_dataset(named, True, refusals=agg.refusals)[0] if named else agg[variable or ""]
    except AggregationError as error:
        if error.hint and "Rules(" in error.hint:  # this command has no rules
            from aggarray.cli._hints import in_shell, options_of

            options = [click.Option([f"--{name.replace('_', '-')}"]) for name in RULES]
            error.hint = f"run aggarray aggregate first: {in_shell(error.hint, options_of(options))}"
        raise


def progress_bar() -> bool | None:
    """Return the argument ``progress``: a bar on a terminal only."""
    return True if sys.stderr is not None and sys.stderr.isatty() else None


def split_names(texts: Sequence[str]) -> list[str]:
    """Return distinct names from texts of names and commas.

    >>> split_names(["source_id,table_id", "source_id"])
    ['source_id', 'table_id']
    """
    return list(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def echo_groups(agg: Aggregation, names: Sequence[str], problems: Sequence[Problem], as_json: bool) -> None:
    """Print the groups of arrays by attributes."""
    from aggarray.display.facts import aggregation_facts
    from aggarray.display.groups import group_facts, group_table, groups
    from aggarray.display.table import terminal_width

    made = groups(agg, aggregation_facts(agg), names, problems)
    if as_json:
        echo_json(group_facts(made, names))
    else:
        click.echo(group_table(made, names, terminal_width()))


def layout_profile(layout: bool, profile: str | None) -> Profile | None:
    """Return the profile, None without --layout; UsageError if invalid."""
    if not layout:
        if profile is not None:
            raise click.UsageError("--profile is of --layout; give both")
        return None
    from aggarray.layout.profiles import load_profile

    try:
        return load_profile(profile)
    except AggarrayError as error:
        raise click.BadParameter(str(error), param_hint="--profile") from error


def check_layout(agg: Aggregation, profile: Profile, arguments: Mapping[str, Any]) -> Report:
    """Report what differs from a profile; remedies name the source as given."""
    from aggarray.layout import checking
    from aggarray.scan.progress import checked_progress

    return checking.check_layout(agg, profile, arguments["source"], checked_progress(progress_bar()))


def echo_json(data: Any) -> None:
    """Print data as JSON."""
    click.echo(without_credentials(json.dumps(data, indent=2)))


def save(agg: Aggregation, path: str, arguments: Mapping[str, Any], **options: Any) -> None:
    """Save an index; print its contents and what other software cannot read."""
    from aggarray.display import facts

    with protected_sources(path, arguments["source"], agg):
        report = agg.save(path, **options)
    if arguments["as_json"]:
        echo_json({"index": path, "arrays": facts.aggregation_facts(agg), "problems": facts.problem_facts(report)})
        return
    click.echo(facts.printable(f"{path}: {arrays_of_files(agg)}"))
    for problem in report.problems:
        click.echo(facts.printable(problem.message), err=True)
    from aggarray.cli._notes import echo_notes

    echo_notes(agg, f"run aggarray explain {path} for the reasons")


def arrays_of_files(agg: Aggregation) -> str:
    """Return the numbers of arrays and files in words."""
    from aggarray.display.facts import file_count
    from aggarray.display.markup import counted

    return f"{counted(len(agg), 'array')} of {counted(file_count(agg), 'file')}"
