"""Command ``aggarray reduce``: write means and other reductions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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
)
from aggarray.cli._reductions import OPERATIONS, OPTIONS, quantiles_of, reduced_arrays, reduction_of, shapes_in
from aggarray.errors import AggarrayError, printable

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.export.extract.reductions import Reduction

#: Options that do not change what is written.
_NOT_OUTPUT = ("--dry-run", "--json", "--overwrite")
_OPERATION: dict[str, Any] = {"multiple": True, "is_flag": False, "flag_value": "", "metavar": "[DIM,...]"}


class _ReduceCommand(RecordedCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if error.param is None or error.param.name != "source":
                raise
            what = "missing argument 'SOURCE...'; give it first: an operation takes the word after it as its dimensions"
            raise click.UsageError(what, ctx) from error


@click.command("reduce", cls=_ReduceCommand)
@common.source_argument
@common.variables_option
@common.all_options(
    *(
        click.option(f"--{name}", name, help=text, shell_complete=common.dimensions_of, **_OPERATION)
        for name, text in OPERATIONS.items()
    )
)
@click.option("--quantile", multiple=True, metavar="Q[:DIM,...]", help="Quantile, such as 0.9:time (repeatable).")
@click.option("--by", metavar="GROUPS", help="Group the dimension: month, season, dayofyear, hour, year, year-month or day.")
@click.option("--weights", metavar="WEIGHTS", help="Weigh by area or by time.")
@click.option("--skipna", is_flag=True, help="Leave out missing values (default).")
@click.option("--no-skipna", is_flag=True, help="Let missing values make a result missing.")
@click.option("--min-count", type=click.IntRange(min=0), metavar="N", help="Make results of fewer values missing (default: 1).")
@selection_options
@output_options
@click.option("--dry-run", is_flag=True, help="Show what would be written without reading the values.")
@common.opening_options
@common.rules_options_of_labels
@common.json_option
@click.pass_obj
def command(line: list[str], /, output: str, overwrite: bool, dry_run: bool, as_json: bool, **arguments: Any) -> None:
    """Write means and other reductions of SOURCE to a file.

    Each file is read once for all operations over the same dimensions. Several results of a variable are named tas_mean,
    tas_max and so on. Without -v, all variables of a dataset that have the dimensions are reduced.
    """
    from aggarray.export.extract import extract
    from aggarray.output.compression import parse_compression

    reduction = _parse_reduction(arguments)
    how: dict[str, Any] = {"compress": arguments.pop("compress"), "reduction": reduction}
    check_storage(output, compress=(how["compress"], parse_compression))
    labels, method = _labels.parse(arguments["sel"]), arguments["method"]
    tolerances = _labels.parse_tolerances(method, arguments.pop("tolerance"))
    opened, units = opened_in_units(arguments)
    check_not_input(output, arguments["source"], opened)
    named = bool(arguments["variables"])
    arrays = converted(require_dataset(list(opened), named, refusals=opened.refusals), units)
    arrays = views_of(arrays, arguments["forecast"])
    selection, left_out = reduced_arrays(_labels.select_all(arrays, labels, method, tolerances), reduction, named)
    line_of_history = command_line("reduce", line, arguments["source"])
    exists = "overwrite" if overwrite else "update" if _is_of_command(output, line_of_history) else "raise"
    if dry_run:
        _foresee(selection, output, exists, how, as_json)
        return
    progress = common.progress_bar()
    done = extract(selection, output, exists=exists, aggregation=opened, command=line_of_history, progress=progress, **how)
    shapes = shapes_in(done.path, selection, reduction)
    if as_json:
        counts = {"bytes": done.nbytes, "unchanged": done.unchanged, "left_out": left_out}
        common.echo_json({"output": done.path, "arrays": shapes, "variables": list(done.variables), **counts})
        return
    click.echo(printable(describe_output(done, shapes)))
    if left_out:
        click.echo(printable(f"left out: {', '.join(left_out)}, without these dimensions"), err=True)


def _parse_reduction(arguments: dict[str, Any]) -> Reduction:
    """Take the options of the reduction; UsageError if they are not clear."""
    arguments["quantile"] = quantiles_of(arguments["quantile"], "--quantile")
    given = [(name, value) for name in arguments if name in (*OPERATIONS, "quantile") for value in arguments[name]]
    operations = [value if name == "quantile" else (name, value) for name, value in given]
    skipna, no_skipna = arguments["skipna"], arguments.pop("no_skipna")
    if skipna and no_skipna:
        raise click.UsageError("--skipna and --no-skipna contradict each other; give one of them")
    arguments["skipna"] = not no_skipna
    return reduction_of(operations, {name: arguments.pop(name) for name in OPTIONS})


def _is_of_command(output: str, line: str) -> bool:
    """Return whether the same command wrote an existing output."""
    from aggarray.formats import scan

    try:
        first, _, _ = str(scan(output).attrs.get("history")).partition("\n")
    except (AggarrayError, OSError):
        return False
    # The number of files may follow in parentheses.
    _, _, written = first.partition(": ")
    before, after = ([word for word in text.split(" ") if word not in _NOT_OUTPUT] for text in (written, line))
    return before == after or (before[: len(after)] == after and before[len(after)].startswith("("))


def _foresee(arrays: list[MasterArray], output: str, exists: str, how: dict[str, Any], as_json: bool) -> None:
    """Print what would be written; raise the errors of a run before it reads."""
    from aggarray.export.extract import is_extracted
    from aggarray.export.extract.target import ExtractTarget

    path = os.path.abspath(output)
    unchanged = is_extracted(arrays, path, **how) and exists != "overwrite"
    if not unchanged:
        ExtractTarget(path, "").check(exists)
    names = [name for array in arrays for name in how["reduction"].names(array.name)]
    if as_json:
        common.echo_json({"output": path, "variables": names, "unchanged": unchanged, "dry_run": True})
    else:
        click.echo(printable(f"{path}: {'unchanged' if unchanged else 'would be written: ' + ', '.join(names)}"))
