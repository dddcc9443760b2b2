"""Which process has what of an array? ``aggarray distribute``."""

from math import prod
from typing import Any

import click

from aggarray.cli._common import (
    echo_json,
    json_option,
    only_array,
    open_source,
    opening_options,
    source_argument,
    variable_option,
)
from aggarray.errors import ProtocolError

#: The sections of more processes than this fill gigabytes.
MOST_PROCESSES = 100_000


@click.command("distribute")
@source_argument
@variable_option
@click.option("-n", "--processes", type=click.IntRange(min=1), metavar="N", help="The number of processes.")
@click.option("--grid", metavar="NxM...", help="Processes along each dimension; by default all along the first.")
@click.option("--dist", metavar="b,c...", help="Block or cyclic, for each dimension; block by default.")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Elements in a block of cyclic dimensions.")
@click.option("--partitions", type=click.Choice(["contiguous", "cost"]), help="Whole partitions per process instead.")
@click.option("--protocol", default="0.10.0", show_default=True, metavar="VERSION", help="The protocol's version.")
@opening_options
@json_option
def command(source: tuple[str, ...], variable: str | None, processes: int | None, as_json: bool, **how: Any) -> None:
    """Say which process has what of an array.

    The dim_data of every rank, by the Distributed Array Protocol. Dimensions that
    --dist or --grid do not mention are not divided. Rows of different lengths are
    shared out in blocks with about as many samples each.
    """
    from aggarray.display import facts

    grid = _grid(how["grid"], processes)
    if prod(grid) > MOST_PROCESSES:
        raise click.UsageError(f"{prod(grid)} processes: their sections are listed for {MOST_PROCESSES} at most")
    if how["partitions"] and (how["dist"] or how["block_size"]):
        raise click.UsageError("--partitions decides itself: leave --dist and --block-size out")
    agg = open_source(source, [variable] if variable else (), how["opening"])
    array = only_array(agg, variable)
    if prod(grid[array.ndim :]) > 1:
        raise click.UsageError(f"{len(grid)} numbers in the grid for {array.ndim} dimensions: {' '.join(array.dimensions)}")
    wanted = facts.DistributionRequest(grid, how["dist"], how["block_size"], how["partitions"])
    try:
        found = facts.distribution_facts(array, wanted, how["protocol"])
    except ProtocolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        echo_json(found)
        return
    samples = ["samples"] * ("samples" in found["ranks"][0])
    click.echo(facts.table(facts.section_rows(found), ["rank", *found["dimensions"], "local shape", *samples]))


def _grid(given: str | None, processes: int | None) -> tuple[int, ...]:
    """Return the process grid that the options mean, without the dimensions that they do not mention."""
    if given is None:
        if processes is None:
            raise click.UsageError("how many processes? Give -n, or --grid")
        return (processes,)
    try:
        grid = tuple(int(n) for n in given.lower().split("x"))
    except ValueError:
        grid = (0,)
    if min(grid) < 1:
        raise click.BadParameter(f"{given!r}: give numbers such as 2x2", param_hint="--grid")
    if processes is not None and prod(grid) != processes:
        raise click.BadParameter(f"{given} has {prod(grid)} processes, not {processes}", param_hint="--grid")
    return grid
