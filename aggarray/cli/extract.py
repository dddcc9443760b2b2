"""Command ``aggarray extract``: write a selection to Zarr or netCDF."""

import os
import shlex
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _common as common
from aggarray.cli import _labels
from aggarray.cli._datasets import converted, require_dataset
from aggarray.errors import AggregationError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.export.extract import Extracted
    from aggarray.opening.aggregation import Aggregation


_SIZES: dict[str, Any] = {"shell_complete": common.dimensions_of}
#: Options by group of the help; the others are last.
_GROUPS: dict[str, Sequence[str]] = {
    "Selection": ("variables", "where", "sel", "method", "tolerance"),
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


class _RecordedCommand(click.Command):
    """Command with groups of options; keeps arguments for ``history``."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        records = [(option.name, record) for option in options if (record := option.get_help_record(ctx))]
        grouped = {name for names in _GROUPS.values() for name in names}
        for title, names in {**_GROUPS, "Options": [n for n, _ in records if n not in grouped]}.items():
            with formatter.section(title):
                formatter.write_dl([record for name, record in records if name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments and keep them in ``ctx.obj``."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


def command_line(arguments: Sequence[str], source: Sequence[str]) -> str:
    """Return a command line that ``history`` can keep.

    Values of --storage and most of many sources are left out.

    >>> command_line(["a.nc", "--storage", "secret=x", "--storage=key=y", "-o", "b c.nc"], ["a.nc"])
    "aggarray extract a.nc --storage secret=... --storage=key=... -o 'b c.nc'"
    >>> command_line([*"abcdefghi", "-o", "x.nc"], "abcdefghi")
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
    return " ".join(["aggarray extract", *words])


@click.command("extract", cls=_RecordedCommand)
@common.source_argument
@common.variables_option
@click.option(
    "--sel",
    multiple=True,
    metavar="DIM=LABEL",
    help="Keep these labels: A:B (both included), A,B,C or one (repeatable).",
    shell_complete=common.dimensions_of,
)
@click.option("--method", type=click.Choice(["nearest", "pad", "backfill"]), help="Which label replaces a missing one.")
@click.option(
    "--tolerance",
    multiple=True,
    metavar="[DIM=]LIMIT",
    help="Greatest distance of --method: 0.5, 12h, time=1D (repeatable; default: one step).",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.zarr|OUT.nc",
    type=click.Path(),
    callback=_checked_output,
    help="The Zarr store or netCDF file to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output.")
@click.option("--append", is_flag=True, help="Write only what follows an existing output, such as new times.")
@click.option("--compress", metavar="NAME[:LEVEL]", help="zlib:4, zstd:3, blosc:5, blosc_lz4:5 or none.")
@click.option("--chunks", multiple=True, metavar="DIM=SIZE,...", help="Chunk sizes by dimension (-1: all of it).", **_SIZES)
@click.option("--shards", multiple=True, metavar="DIM=SIZE,...", help="Sizes of files of several chunks, in Zarr.", **_SIZES)
@common.opening_options
@common.rules_options_of_labels
@common.json_option
@click.pass_obj
def command(line: list[str], /, output: str, overwrite: bool, as_json: bool, **arguments: Any) -> None:
    """Write a selection of SOURCE to one Zarr store or netCDF file.

    The output holds all variables of a dataset, or those of -v. Memory is bounded. A run that was interrupted resumes when it
    is started again. If SOURCE is an index, its arrays are joined already: of the rules, only --units applies.
    """
    from aggarray.display.facts import printable
    from aggarray.export.extract import extract

    how = _storage_options(output, overwrite, arguments)
    labels, method = _labels.parse(arguments["sel"]), arguments["method"]
    tolerances = _labels.parse_tolerances(method, arguments.pop("tolerance"))
    opened, units = _opened(arguments)
    try:
        common.check_output(output, arguments["source"], opened)
    except AggregationError as error:
        raise click.UsageError(str(error)) from error
    arrays = require_dataset(list(opened), bool(arguments["variables"]), refusals=opened.refusals)
    selection = _labels.select_all(converted(arrays, units), labels, method, tolerances)
    done = extract(
        selection,
        output,
        exists="overwrite" if overwrite else "raise",
        aggregation=opened,
        **how,
        command=command_line(line, arguments["source"]),
        progress=common.progress_bar(),
    )
    if as_json:
        shapes = {a.name: dict(zip(a.dimensions, a.shape, strict=True)) for a in selection}
        counts = {"bytes": done.nbytes, "resumed": done.resumed, "unchanged": done.unchanged, "appended": done.appended}
        common.echo_json({"output": done.path, "arrays": shapes, "variables": list(done.variables), **counts})
    else:
        click.echo(printable(describe_extract(done, selection)))


def _storage_options(output: str, overwrite: bool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the options of storage; BadParameter if the output lacks one."""
    from aggarray.output.chunk_sizes import check_shards
    from aggarray.output.compression import parse_compression

    compress, append = arguments.pop("compress"), arguments.pop("append")
    chunks, shards = (common.sizes(arguments.pop(name), f"--{name}") for name in ("chunks", "shards"))
    if append and overwrite:
        raise click.UsageError("--append keeps an existing output, and --overwrite replaces it; give one of them")
    suffix = os.path.splitext(output)[1].lower()
    for option, check in (("--compress", partial(parse_compression, compress)), ("--shards", partial(check_shards, shards))):
        try:
            check(suffix)
        except AggregationError as error:
            what = str(error).replace("compress=", "", 1).replace(f"shards={shards!r}: ", "", 1)
            raise click.BadParameter(what, param_hint=option) from error
    return {"compress": compress, "append": append, "chunks": chunks or None, "shards": shards or None}


def _opened(arguments: dict[str, Any]) -> "tuple[Aggregation, dict[str, str]]":
    """Open the source; return it and the units into which to convert lazily.

    UsageError for rules of an index, which keeps those that it was made with.
    """
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


def describe_extract(done: "Extracted", arrays: "list[MasterArray]") -> str:
    """Return a line about an extract."""
    from aggarray.scan.progress import amount

    if done.unchanged:
        return f"{done.path}: unchanged"
    shapes = ", ".join(
        f"{a.name} ({', '.join(f'{d}: {n}' for d, n in zip(a.dimensions, a.shape, strict=True))})" for a in arrays
    )
    resumed = f", {amount(done.resumed, 'bytes')} of them from an earlier run" if done.resumed else ""
    appended = f", {done.appended} appended along {done.dimension}" if done.appended else ""
    return f"{done.path}: {shapes}, {amount(done.nbytes, 'bytes')} of values{appended}{resumed}"
