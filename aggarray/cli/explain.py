"""Command ``aggarray explain``: show joins and refusals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from aggarray.cli import _common as common

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation

#: The keys of a fix that change something.
CHANGES = ("delete", "set", "shift_time", "rename", "drop")
#: Of more arrays than this, a table has a row for each.
MOST_DETAILED = 6


@click.command("explain")
@common.source_argument
@common.variables_option
@click.option("--all", "everything", is_flag=True, help="Show details of every array, and every refusal and source.")
@click.option(
    "--sel",
    multiple=True,
    metavar="DIM=LABEL",
    help="Show the source of these labels instead: files, parts and conversions; A:B, A,B,C or one (repeatable).",
    shell_complete=common.dimensions_of,
)
@common.group_option
@common.rules_options
@common.opening_options
@common.json_option
def command(everything: bool, sel: tuple[str, ...], group_by: list[str], as_json: bool, **arguments: Any) -> None:
    """Explain how the arrays of SOURCE were joined, or why not.

    The output includes conversions on reading, fixes, skipped files and missing parts. Datasets that differ in attributes such
    as source_id are expected to stay separate: without --all, one line counts them.

    The exit status is 1 if there are problems: gaps, holes, duplicate files, unreadable files.
    """
    from aggarray.display import facts

    if sel:
        if group_by:
            raise click.UsageError("--sel shows sources and --group-by groups; give one of them")
        _echo_sources(common.open_arguments(arguments), sel, everything, as_json)
        return
    agg = common.open_arguments(arguments, notes=False)
    report = agg.check()
    if group_by:
        common.echo_groups(agg, group_by, report.problems, as_json)
    else:
        explanation = facts.explanation(agg, report)
        if as_json:
            common.echo_json(explanation)
        else:
            from aggarray.display.refusals import problem_table, skipped_table
            from aggarray.display.table import terminal_width

            width = terminal_width()
            blocks = [*_arrays(agg, explanation["arrays"], everything, width), _refusals(agg, everything, width)]
            unreadable = {problem.file for problem in report.problems if problem.kind == "unreadable"}
            skipped = [item for item in agg.skipped if item.variable is not None or item.file not in unreadable]
            blocks += [_fixes(explanation["fixes"], width)] if explanation["fixes"] else []
            blocks += [f"skipped\n{skipped_table(skipped, width)}"] if skipped else []
            blocks += [f"problems\n{problem_table(report.problems, width)}"] if report.problems else []
            click.echo("\n\n".join(block for block in blocks if block))
    if report.problems:
        raise SystemExit(1)


def _echo_sources(agg: Aggregation, sel: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Print the sources of labels, per array."""
    from aggarray.cli import _labels
    from aggarray.display.facts import aggregation_facts
    from aggarray.display.markup import printable
    from aggarray.display.sources import source_facts, sources_text
    from aggarray.display.table import MOST_ROWS, terminal_width

    selection = _labels.select_all(list(agg), _labels.parse(sel), None, {})
    which = [fact["which"] for fact in aggregation_facts(agg, with_paths=False)]
    sources = [array.sources() for array in selection]
    if as_json:
        rows = zip(selection, which, sources, strict=True)
        common.echo_json([{"name": a.name, "which": w, "sources": [source_facts(s) for s in found]} for a, w, found in rows])
        return
    blocks = []
    for array, words, found in zip(selection, which, sources, strict=True):
        title = printable(f"{array.name}{f' [{words}]' if words else ''}")
        blocks.append(f"{title}: {sources_text(found, terminal_width(), None if everything else MOST_ROWS)}")
    click.echo("\n\n".join(blocks))


def _arrays(agg: Aggregation, arrays: list[dict[str, Any]], everything: bool, width: int | None) -> list[str]:
    """Return a block of text per array, or a table of many arrays."""
    if everything or len(arrays) <= MOST_DETAILED:
        return ["\n".join(_array_lines(array, width)) for array in arrays]
    from aggarray.display.facets import facet_columns
    from aggarray.display.listing import array_list

    kinds = [", ".join(dict.fromkeys(c["kind"] for c in array["conformed"])) for array in arrays]
    return [array_list(arrays, facet_columns(agg.arrays), width, {"conformed": kinds})]


def _fixes(fixes: list[dict[str, Any]], width: int | None) -> str:
    """Return a table of the fixes, in the order in which they are applied."""
    from aggarray.display.table import table

    rows = []
    for fix in fixes:
        if fix["files"] or not fix.get("optional"):
            where = fix.get("where", "every file")
            conditions = [_condition(one) for one in (where if isinstance(where, list) else [where])]
            changes = [f"{name} {_change(fix[name])}".rstrip() for name in CHANGES if name in fix]
            variable = fix.get("variable", "the file")
            rows.append([" ".join(conditions), variable, "; ".join(changes), f"{fix['files']:,}", fix.get("note", "")])
    others = len(fixes) - len(rows)
    lines = [table(rows, ["where", "variable", "change", "files", "why"], width=width)] if rows else []
    lines += [f"{others} optional fixes match no file"] if others else []
    return "\n".join(["fixes", *lines])


def _condition(where: Any) -> str:
    return where if isinstance(where, str) else ", ".join(f"{name}={_change(value)}" for name, value in where.items())


def _change(value: Any) -> str:
    """Return a value of a fix as short text."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is True else str(value)


def _refusals(agg: Aggregation, everything: bool, width: int | None) -> str:
    """Return the refusals, with those between datasets in one line."""
    from aggarray.cli._hints import in_shell, options_of
    from aggarray.display.refusals import dataset_line, divide, refusal_table

    unexpected, between = divide(agg.refusals, agg._provenance.rules.separate_by)
    shown, options = [*unexpected, *(between if everything else ())], options_of(click.get_current_context().command.params)
    lines = [refusal_table(shown, agg.arrays, width, lambda text: in_shell(text, options))] if shown else []
    lines += [f"{dataset_line(between, agg.arrays)}; --all lists why"] if between and not everything else []
    return "\n".join(["not joined", *lines]) if lines else ""


def _array_lines(array: dict[str, Any], width: int | None) -> list[str]:
    from aggarray.display.listing import shape_text, time_text
    from aggarray.display.markup import counted, printable, sizes
    from aggarray.display.table import table
    from aggarray.partition.file_names import common_folder

    which = f" [{array['which']}]" if array["which"] else ""
    lines = [printable(f"{array['name']}{which} {shape_text(array)} {array['dtype']} {array['units'] or ''}".rstrip())]
    matrix, folder = array["partitions"], common_folder(array["paths"])
    holes = f", {matrix['missing']} missing" if matrix["missing"] else ""
    files = f"{counted(array['files'], 'file')} in {folder or 'several folders'}"
    where = "memory" if not array["files"] else files if array["files"] > 1 else array["paths"][0]
    lines.append(printable(f"  partitions {sizes(matrix['dimensions'], matrix['shape'])}{holes}, from {where}"))
    if array["time"]:
        lines.append(f"  time {time_text(array['time'])}")
    if array["conformed"]:
        rows = []
        for c in array["conformed"]:
            example = os.path.relpath(c["example"], folder) if c["example"] and folder else c["example"] or "in memory"
            rows.append([c["kind"], c["found"], c["master"], f"{c['count']} of {array['subarrays']}", example])
        head = ["conformed", "in the file", "in the array", "sub-arrays", "such as"]
        text = table(rows, head, width=None if width is None else width - 2)
        lines += ["  " + line for line in text.splitlines()]
    return lines
