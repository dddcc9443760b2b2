"""How do values get out of many files into one? ``aggarray extract``."""

from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _labels
from aggarray.cli._common import (
    EXTRACTED,
    bar,
    check_output,
    chosen,
    distinct,
    echo_json,
    json_option,
    open_source,
    opening_options,
    pairs,
    source_argument,
    variables_option,
    where_option,
)
from aggarray.cli._completing import dimensions_of
from aggarray.errors import AggregationError

if TYPE_CHECKING:
    from aggarray.arrays import MasterArray
    from aggarray.export.extract import Extracted


def _checked_output(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the output; BadParameter unless its name says what is to be written."""
    if not value.lower().endswith(EXTRACTED):
        raise click.BadParameter(f"{value!r}: give a name that ends with .zarr or .nc: it decides what is written")
    return value


@click.command("extract")
@source_argument
@variables_option
@click.option(
    "--sel",
    multiple=True,
    metavar="DIM=LABEL",
    help="Keep these labels: A:B (both included), A,B,C or one (repeatable).",
    shell_complete=dimensions_of,
)
@click.option("--method", type=click.Choice(["nearest", "pad", "backfill"]), help="Which label serves one that is not there.")
@click.option(
    "--tolerance", multiple=True, metavar="[DIM=]LIMIT", help="How far away --method may go: 0.5, 12h, time=1D (repeatable)."
)
@where_option
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.zarr|OUT.nc",
    type=click.Path(),
    callback=_checked_output,
    help="What to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@opening_options
@json_option
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, output: str, **how: Any) -> None:
    """Write a part of SOURCE to one Zarr store or netCDF file.

    In bounded memory. A run that was stopped goes on where it was when it is started again.
    """
    from aggarray.display.facts import printable
    from aggarray.export.extract import extract

    labels, near = _labels.parse(how["sel"]), _labels.near_of(how["method"], how["tolerance"])
    where = pairs(how["where"], "--where", "NAME=VALUE")
    opened = open_source(source, variables, how["opening"])
    try:
        check_output(output, source, opened)
    except AggregationError as error:
        raise click.UsageError(str(error)) from error
    agg = chosen(opened, where)
    found = _labels.select_all(distinct(list(agg), "by --where NAME=VALUE"), labels, near)
    done = extract(found, output, exists="overwrite" if how["overwrite"] else "raise", progress=bar())
    if as_json:
        echo_json(facts_of(done, found))
    else:
        click.echo(printable(said_of(done, found)))


def facts_of(done: "Extracted", arrays: "list[MasterArray]") -> dict[str, Any]:
    """Return what was extracted, as JSON can hold it."""
    shapes = {a.name: dict(zip(a.dimensions, a.shape, strict=True)) for a in arrays}
    rest = {"bytes": done.nbytes, "resumed": done.resumed, "unchanged": done.unchanged}
    return {"output": done.path, "arrays": shapes, "variables": list(done.variables), **rest}


def said_of(done: "Extracted", arrays: "list[MasterArray]") -> str:
    """Say in a line what was extracted."""
    from aggarray.scan.progress import amount

    shapes = ", ".join(f"{a.name} {' x '.join(map(str, a.shape)) or 'scalar'}" for a in arrays)
    resumed = f", {amount(done.resumed, 'bytes')} of them from a run before" if done.resumed else ""
    return f"{done.path}: {shapes}, {amount(done.nbytes, 'bytes')} of values{resumed}"
