"""Options and output that commands share which write arrays to a file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _common as common
from aggarray.cli._forecast import parse_view
from aggarray.errors import AggregationError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.export.extract import Extracted
    from aggarray.opening.aggregation import Aggregation

#: Options by group of the help; the others are last.
_GROUPS: dict[str, Sequence[str]] = {
    "Selection": ("variables", "where", "forecast", "sel", "method", "tolerance"),
    "Output": ("output", "overwrite", "append", "compress", "chunks", "shards"),
    "Reading": ("roots", "relocate", "fill_missing", "storage"),
    "Joining": [name for name in common.RULES if name != "tolerance"],
}
#: Of more sources, only the first three and the last are part of ``history``.
MOST_SOURCES = 8


def _checked_output(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.lower().endswith(common.EXTRACT_SUFFIXES):
        raise click.BadParameter(f"{value!r} has no known suffix; give a name that ends with .zarr or .nc")
    return value


#: Options that select labels.
selection_options = common.all_options(
    click.option(
        "--forecast",
        metavar="best|period=LEAD|run=TIME",
        callback=lambda ctx, param, value: parse_view(value),
        help="View forecasts along the valid time: the latest run at each time, one lead of each run, or one run.",
    ),
    click.option(
        "--sel",
        multiple=True,
        metavar="DIM=LABEL",
        help="Keep these labels: A:B (both included), A,B,C or one (repeatable).",
        shell_complete=common.dimensions_of,
    ),
    click.option("--method", type=click.Choice(["nearest", "pad", "backfill"]), help="Which label replaces a missing one."),
    click.option(
        "--tolerance",
        multiple=True,
        metavar="[DIM=]LIMIT",
        help="Greatest distance of --method: 0.5, 12h, time=1D (repeatable; default: one step).",
    ),
)
#: Options of the output.
output_options = common.all_options(
    click.option(
        "-o",
        "--output",
        required=True,
        metavar="OUT.zarr|OUT.nc",
        type=click.Path(),
        callback=_checked_output,
        help="The Zarr store or netCDF file to write.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace an existing output."),
    click.option("--compress", metavar="NAME[:LEVEL]", help="zlib:4, zstd:3, blosc:5, blosc_lz4:5 or none."),
)


class RecordedCommand(click.Command):
    """Command with groups of options; keeps arguments for ``history``."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        records = [(option.name, record) for option in options if (record := option.get_help_record(ctx))]
        grouped = {name for names in _GROUPS.values() for name in names}
        for title, names in {**_GROUPS, "Options": [n for n, _ in records if n not in grouped]}.items():
            if rows := [record for name, record in records if name in names]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments and keep them in ``ctx.obj``."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


def command_line(name: str, arguments: Sequence[str], source: Sequence[str]) -> str:
    """Return a command line that ``history`` can keep.

    Values of --storage and most of many sources are left out.

    >>> command_line("extract", ["a.nc", "--storage", "secret=x", "--storage=key=y", "-o", "b c.nc"], ["a.nc"])
    "aggarray extract a.nc --storage secret=... --storage=key=... -o 'b c.nc'"
    >>> command_line("extract", [*"abcdefghi", "-o", "x.nc"], "abcdefghi")
    'aggarray extract a b c ... i -o x.nc'
    """
    dropped = set(source[3:-1]) if len(source) > MOST_SOURCES else set()
    words: list[str] = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        # promise: history-without-secrets
        if word.startswith("--storage=") or before == "--storage":
            option, value = ("--storage=", word[len("--storage=") :]) if word.startswith("--storage=") else ("", word)
            words.append(shlex.quote(f"{option}{value.partition('=')[0]}=..."))
        elif word not in dropped:
            words.append(shlex.quote(word.partition("?")[0] if "://" in word else word))
        elif words[-1:] != ["..."]:
            words.append("...")
    return " ".join([f"aggarray {name}", *words])


def check_storage(output: str, **checks: tuple[Any, Callable[[Any, str], Any]]) -> None:
    """Raise BadParameter if the format of the output lacks an option.

    ``checks``: the value and the check of each option.
    """
    suffix = os.path.splitext(output)[1].lower()
    for name, (value, check) in checks.items():
        try:
            check(value, suffix)
        except AggregationError as error:
            what = str(error).replace(f"{name}=", "", 1).replace(f"{value!r}: ", "", 1)
            raise click.BadParameter(what, param_hint=f"--{name}") from error


def check_not_input(output: str, source: Sequence[str], opened: Aggregation) -> None:
    """Raise UsageError if the output would replace a file of the source."""
    try:
        common.check_output(output, source, opened)
    except AggregationError as error:
        raise click.UsageError(str(error)) from error


def opened_in_units(arguments: dict[str, Any]) -> tuple[Aggregation, dict[str, str]]:
    """Open the source; return it and the units into which to convert lazily.

    UsageError for rules of an index, which keeps those that it was made with.
    """
    if arguments["forecast"] and not arguments["preset"] and not _is_index(arguments["source"]):
        arguments = {**arguments, "preset": "forecast"}
    rules = [name for name in common.RULES if arguments.get(name)]
    units = common.pairs(arguments["units"], "--units", "NAME=UNITS")
    source = arguments["source"]
    if rules and len(source) == 1 and (os.path.isfile(source[0]) or ("://" in source[0] and "*" not in source[0])):
        opened = common.open_arguments({name: value for name, value in arguments.items() if name not in common.RULES})
        if opened._provenance.saved:
            if others := [name for name in rules if name != "units"]:
                option = f"--{others[0].replace('_', '-')}"
                what = f"{option} does not change an index, which keeps the rules that it was made with"
                raise click.UsageError(f"{what}; make another with aggarray aggregate {option}, or give the data files")
            return opened, units
    return common.open_arguments(arguments), {}


def _is_index(source: Sequence[str]) -> bool:
    from aggarray.index.recognition import stored_generation

    return len(source) == 1 and stored_generation(source[0]) is not None


def describe_output(done: Extracted, shapes: Mapping[str, Mapping[str, int]]) -> str:
    """Return a line about a written output; ``shapes``: sizes of each array."""
    from aggarray.scan.progress import amount

    if done.unchanged:
        return f"{done.path}: unchanged"
    texts = ", ".join(f"{name} ({', '.join(f'{d}: {n}' for d, n in sizes.items())})" for name, sizes in shapes.items())
    resumed = f", {amount(done.resumed, 'bytes')} of them from an earlier run" if done.resumed else ""
    appended = f", {done.appended} appended along {done.dimension}" if done.appended else ""
    return f"{done.path}: {texts}, {amount(done.nbytes, 'bytes')} of values{appended}{resumed}"


def shapes_of(arrays: Iterable[MasterArray]) -> dict[str, dict[str, int]]:
    """Return the sizes of arrays by name and dimension."""
    return {a.name or "": dict(zip(a.dimensions, a.shape, strict=True)) for a in arrays}
