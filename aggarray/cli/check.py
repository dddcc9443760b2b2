"""Command ``aggarray check``: report problems of an index or files."""

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("check")
@common.source_argument
@click.option("--checksum", is_flag=True, help="Also compare checksums of both ends of each file (Zarr: of the metadata).")
@common.group_option
@common.opening_options
@common.json_option
def command(checksum: bool, group_by: list[str], as_json: bool, **arguments: Any) -> None:
    """Report problems of an index or files.

    Problems are gaps, holes, duplicates, and files that are missing, changed or damaged. The exit status is 1 if there are
    problems.
    """
    from aggarray.display import facts
    from aggarray.display.refusals import problem_table
    from aggarray.display.table import terminal_width

    agg = common.open_arguments(arguments)
    report = agg.check(checksum=checksum)
    problems = facts.problem_facts(report)
    if group_by:
        common.echo_groups(agg, group_by, report.problems, as_json)
    elif as_json:
        common.echo_json({"ok": report.ok, "problems": problems})
    else:
        click.echo(problem_table(report.problems, terminal_width()) if problems else "no problems")
        common.echo_notes(agg, "run aggarray explain for the reasons", skipped=False)
    if problems:
        raise SystemExit(1)
