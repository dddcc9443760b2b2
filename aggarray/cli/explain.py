"""How were files joined, and why not others? ``aggarray explain``."""

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
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Say how the arrays of SOURCE were joined, and why not others.

    Also what is conformed on reading, what was skipped, and what is missing.

    Exit status 1 where there are problems: gaps, holes, repeated files, files that cannot be read.
    """
    from aggarray.display import facts

    found = facts.explanation(open_source(source, variables, **how))
    click.echo(json.dumps(found, indent=2) if as_json else _explained(found))
    if found["problems"]:
        raise SystemExit(1)


def _explained(found: dict[str, Any]) -> str:
    """Return an explanation as text: arrays, what stayed apart, what was skipped, what is wrong."""
    from aggarray.display.facts import printable

    lines = [line for array in found["arrays"] for line in [*_explained_array(array), ""]]
    if found["refusals"]:
        apart = (f"  {' and '.join(dict.fromkeys(r['arrays']))} [{r['rule']}]: {r['reason']}" for r in found["refusals"])
        lines += ["stayed apart", *map(printable, apart), ""]
    if found["skipped"]:
        names = (
            f"  {s['file']}{': variable ' + repr(s['variable']) if s['variable'] else ''}: {s['reason']}"
            for s in found["skipped"]
        )
        lines += ["skipped", *map(printable, names), ""]
    if found["problems"]:
        lines += ["problems", *(printable(f"  [{p['kind']}] {p['message']}") for p in found["problems"])]
    return "\n".join(lines).rstrip()


def _explained_array(array: dict[str, Any]) -> list[str]:
    """Return the lines on one array: its shape, its partitions, its time range and what reading conforms."""
    from aggarray.aggregate.differences import common_folder
    from aggarray.display.facts import printable, table

    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array["dimensions"], array["shape"], strict=True))
    which = f" [{array['which']}]" if array["which"] else ""
    lines = [printable(f"{array['name']}{which} ({sizes}) {array['dtype']} {array['units'] or ''}".rstrip())]
    matrix = array["partitions"]
    count = " x ".join(f"{n} {d}" for d, n in zip(matrix["dimensions"], matrix["shape"], strict=True)) or "1"
    holes = f", {matrix['missing']} missing" if matrix["missing"] else ""
    folder = common_folder(array["paths"])
    files = f"{array['files']} files in {folder or 'several places'}" if array["files"] != 1 else array["paths"][0]
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
