"""Command ``aggarray extract``: write a selection to Zarr or netCDF."""

from __future__ import annotations

from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.cli import _labels
from aggarray.cli._datasets import converted, require_dataset
from aggarray.cli._forecast import views_of
from aggarray.cli._output import (
    RecordedCommand,
    check_not_input,
    check_storage,
    command_line,
    describe_output,
    opened_in_units,
    output_options,
    selection_options,
    shapes_of,
)

_SIZES: dict[str, Any] = {"shell_complete": common.dimensions_of}


@click.command("extract", cls=RecordedCommand)
@common.source_argument
@common.variables_option
@selection_options
@output_options
@click.option("--append", is_flag=True, help="Write only what follows an existing output, such as new times.")
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
    opened, units = opened_in_units(arguments)
    check_not_input(output, arguments["source"], opened)
    arrays = require_dataset(list(opened), bool(arguments["variables"]), refusals=opened.refusals)
    arrays = views_of(converted(arrays, units), arguments["forecast"])
    selection = _labels.select_all(arrays, labels, method, tolerances)
    done = extract(
        selection,
        output,
        exists="overwrite" if overwrite else "raise",
        aggregation=opened,
        **how,
        command=command_line("extract", line, arguments["source"]),
        progress=common.progress_bar(),
    )
    if as_json:
        counts = {"bytes": done.nbytes, "resumed": done.resumed, "unchanged": done.unchanged, "appended": done.appended}
        common.echo_json({"output": done.path, "arrays": shapes_of(selection), "variables": list(done.variables), **counts})
    else:
        click.echo(printable(describe_output(done, shapes_of(selection))))


def _storage_options(output: str, overwrite: bool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the options of storage; BadParameter if the output lacks one."""
    from aggarray.output.chunk_sizes import check_shards
    from aggarray.output.compression import parse_compression

    compress, append = arguments.pop("compress"), arguments.pop("append")
    chunks, shards = (common.sizes(arguments.pop(name), f"--{name}") for name in ("chunks", "shards"))
    if append and overwrite:
        raise click.UsageError("--append keeps an existing output, and --overwrite replaces it; give one of them")
    check_storage(output, compress=(compress, parse_compression), shards=(shards, check_shards))
    return {"compress": compress, "append": append, "chunks": chunks or None, "shards": shards or None}
