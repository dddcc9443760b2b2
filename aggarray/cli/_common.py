"""What do commands have in common? Options, opening a source, and what they say of it beside the facts."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from aggarray.api import Aggregation

#: Options of many commands.
json_option = click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")
source_argument = click.argument("source", nargs=-1, required=True)
variables_option = click.option(
    "-v", "--variable", "variables", multiple=True, metavar="NAME", help="Keep only this variable (repeatable)."
)


def open_source(source: Sequence[str], variables: Sequence[str] = (), **how: Any) -> "Aggregation":
    """Open a source as `aggarray.open` does, with a bar on a terminal."""
    # The package's heavy parts load only here, so that --help answers at once.
    from aggarray.api import open

    return open(list(source), variables=list(variables) or None, progress=bar(), **how)


def bar() -> bool | None:
    """Return the argument ``progress``: a bar on a terminal, none elsewhere."""
    return True if sys.stderr.isatty() else None


def echo_json(found: Any) -> None:
    """Print facts as data."""
    click.echo(json.dumps(found, indent=2))


def save(agg: "Aggregation", path: str, as_json: bool, **how: Any) -> None:
    """Save an index, and say what is in it and what other software will not see."""
    from aggarray import facts

    report = agg.save(path, **how)
    if as_json:
        echo_json({"index": path, "arrays": facts.aggregation_facts(agg), "problems": facts.problem_facts(report)})
        return
    files = facts.file_count(agg)
    click.echo(facts.printable(f"{path}: {len(agg)} array{'s' * (len(agg) != 1)} of {files} file{'s' * (files != 1)}"))
    for problem in report.problems:
        click.echo(facts.printable(f"for aggarray alone: {problem.message}"), err=True)
    notes(agg, f"aggarray explain {path} says why")


def notes(agg: "Aggregation", hint: str) -> None:
    """Tell on standard error that there is more to know."""
    counts = [f"arrays that stayed apart: {len(agg.refusals)}"] if agg.refusals else []
    counts += [f"files or variables skipped: {len(agg.skipped)}"] if agg.skipped else []
    if counts:
        click.echo(f"{', '.join(counts)} ({hint})", err=True)
