"""Command ``aggarray explain``: show how files were joined, and why others were not."""

import json
import os
from typing import Any

import click

from aggarray.cli._common import json_option, open_source, opening_options, rules_options, source_argument, variables_option


@click.command("explain")
@source_argument
@variables_option
@rules_options
@opening_options
@json_option
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Explain how the arrays of SOURCE were joined, or why not.

    The output includes conversions on reading, skipped files and missing parts.

    The exit status is 1 if there are problems: gaps, holes, duplicate files, unreadable files.
    """
    from aggarray.display import facts

    explanation = facts.explanation(open_source(source, variables, **arguments))
    click.echo(json.dumps(explanation, indent=2) if as_json else _format_explanation(explanation))
    if explanation["problems"]:
        raise SystemExit(1)


def _format_explanation(explanation: dict[str, Any]) -> str:
    """Return an explanation as text: arrays, refusals, skipped files, problems."""
    from aggarray.display.facts import printable

    lines = [line for array in explanation["arrays"] for line in [*_array_lines(array), ""]]
    if explanation["refusals"]:
        refusals = explanation["refusals"]
        reasons = (f"  {' and '.join(dict.fromkeys(r['arrays']))} [{r['rule']}]: {r['reason']}" for r in refusals)
        lines += ["not joined", *map(printable, reasons), ""]
    if explanation["skipped"]:
        names = (
            f"  {s['file']}{': variable ' + repr(s['variable']) if s['variable'] else ''}: {s['reason']}"
            for s in explanation["skipped"]
        )
        lines += ["skipped", *map(printable, names), ""]
    if explanation["problems"]:
        lines += ["problems", *(printable(f"  [{p['kind']}] {p['message']}") for p in explanation["problems"])]
    return "\n".join(lines).rstrip()


def _array_lines(array: dict[str, Any]) -> list[str]:
    """Return the lines of one array: shape, partitions, time range and conversions."""
    from aggarray.aggregate.differences import common_folder
    from aggarray.display.facts import printable, table

    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array["dimensions"], array["shape"], strict=True))
    which = f" [{array['which']}]" if array["which"] else ""
    lines = [printable(f"{array['name']}{which} ({sizes}) {array['dtype']} {array['units'] or ''}".rstrip())]
    matrix = array["partitions"]
    count = " x ".join(f"{n} {d}" for d, n in zip(matrix["dimensions"], matrix["shape"], strict=True)) or "1"
    holes = f", {matrix['missing']} missing" if matrix["missing"] else ""
    folder = common_folder(array["paths"])
    files = f"{array['files']} files in {folder or 'several folders'}" if array["files"] != 1 else array["paths"][0]
    lines.append(printable(f"  partitions {count}{holes}, from {files if array['files'] else 'memory'}"))
    if array["time"]:
        lines.append(f"  time {' to '.join(dict.fromkeys(array['time']))}")
    if array["conformed"]:
        head = ["conformed", "in the file", "in the array", "sub-arrays", "such as"]
        rows = [
            [
                c["kind"],
                c["found"],
                c["master"],
                f"{c['count']} of {array['subarrays']}",
                os.path.relpath(c["example"], folder) if c["example"] and folder else c["example"] or "in memory",
            ]
            for c in array["conformed"]
        ]
        lines += ["  " + line for line in table(rows, head).splitlines()]
    return lines
