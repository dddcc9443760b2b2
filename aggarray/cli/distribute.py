"""Command ``aggarray distribute``: show the sections of an array per process."""

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

#: The sections of more processes take gigabytes of text.
MOST_PROCESSES = 100_000


@click.command("distribute")
@source_argument
@variable_option
@click.option("-n", "--processes", type=click.IntRange(min=1), metavar="N", help="The number of processes.")
@click.option("--grid", metavar="NxM...", help="Processes along each dimension (default: all along the first).")
@click.option("--dist", metavar="b,c...", help="Block or cyclic, for each dimension (default: block).")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Elements per block of cyclic dimensions.")
@click.option("--partitions", type=click.Choice(["contiguous", "cost"]), help="Distribute whole partitions instead.")
@click.option("--protocol", default="0.10.0", show_default=True, metavar="VERSION", help="The version of the protocol.")
@opening_options
@json_option
def command(source: tuple[str, ...], variable: str | None, processes: int | None, as_json: bool, **arguments: Any) -> None:
    """Show the sections of an array per process.

    The output is the dim_data of every rank (Distributed Array Protocol). Dimensions that --dist or --grid do not mention
    are not divided. Ragged arrays are divided into blocks with about equal numbers of samples.
    """
    from aggarray.display import facts

    grid = _grid(arguments["grid"], processes)
    if prod(grid) > MOST_PROCESSES:
        raise click.UsageError(f"{prod(grid)} processes are too many; give at most {MOST_PROCESSES}")
    if arguments["partitions"] and (arguments["dist"] or arguments["block_size"]):
        raise click.UsageError("--partitions excludes --dist and --block-size; leave one of them out")
    agg = open_source(source, [variable] if variable else (), arguments["opening"])
    array = only_array(agg, variable)
    if prod(grid[array.ndim :]) > 1:
        raise click.UsageError(f"--grid has {len(grid)} numbers for {array.ndim} dimensions: {' '.join(array.dimensions)}")
    request = facts.DistributionRequest(grid, arguments["dist"], arguments["block_size"], arguments["partitions"])
    try:
        distribution = facts.distribution_facts(array, request, arguments["protocol"])
    except ProtocolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        echo_json(distribution)
        return
    samples = ["samples"] * ("samples" in distribution["ranks"][0])
    head = ["rank", *distribution["dimensions"], "local shape", *samples]
    click.echo(facts.table(facts.section_rows(distribution), head))


def _grid(text: str | None, processes: int | None) -> tuple[int, ...]:
    """Return the process grid of the options, without trailing dimensions that they do not mention."""
    if text is None:
        if processes is None:
            raise click.UsageError("the number of processes is missing; give -n or --grid")
        return (processes,)
    try:
        grid = tuple(int(n) for n in text.lower().split("x"))
    except ValueError:
        grid = (0,)
    if min(grid) < 1:
        raise click.BadParameter(f"{text!r} is not a grid; give numbers such as 2x2", param_hint="--grid")
    if processes is not None and prod(grid) != processes:
        raise click.BadParameter(f"{text} has {prod(grid)} processes, not {processes}", param_hint="--grid")
    return grid
