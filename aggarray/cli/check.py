"""Command ``aggarray check``: report problems of an index or files."""

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("check")
@common.source_argument
@click.option("--checksum", is_flag=True, help="Also compare checksums of both ends of each file (Zarr: of the metadata).")
@common.opening_options
@common.json_option
def command(checksum: bool, as_json: bool, **arguments: Any) -> None:
    """Report problems of an index or files.

    Problems are gaps, holes, duplicates, and files that are missing, changed or damaged. The exit status is 1 if there are
    problems.
    """
    from aggarray.display import facts

    report = common.open_arguments(arguments).check(checksum=checksum)
    problems = facts.problem_facts(report)
    if as_json:
        common.echo_json({"ok": report.ok, "problems": problems})
    else:
        lines = [facts.printable(f"[{p['kind']}] {p['message']}") for p in problems]
        click.echo("\n".join(lines) or "no problems")
    if problems:
        raise SystemExit(1)
