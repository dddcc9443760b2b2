"""Style and tables of HTML in notebooks, and arrays in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggarray.display.markup import breakable, escaped, shortened

#: The most rows of reasons and attributes, and the longest values; the rest is cut.
MOST_ROWS, LONGEST = 50, 300
#: Text has the colours of the notebook, light or dark.
_STYLE = """<style>
.aggarray-shown { color: var(--jp-content-font-color0, var(--vscode-editor-foreground, inherit)); line-height: 1.4; }
.aggarray-shown table { border-collapse: collapse; margin: .2em 0; font-size: inherit; }
.aggarray-shown th, .aggarray-shown td { text-align: left; padding: .05em .9em .05em 0; border: 0; background: none;
  color: inherit; vertical-align: top; overflow-wrap: break-word; }
.aggarray-shown th { font-weight: 600; white-space: nowrap; }
.aggarray-shown .aggarray-rows td { white-space: nowrap; vertical-align: middle; }
.aggarray-shown .nb { white-space: nowrap; }
.aggarray-shown .aggarray-number { text-align: right; }
.aggarray-shown .aggarray-scroll { overflow-x: auto; }
.aggarray-shown summary { cursor: pointer; }
.aggarray-shown svg { display: block; max-width: 100%; height: auto; margin: .3em 0; }
.aggarray-shown .aggarray-rows svg { max-width: none; margin: 0; }
</style>"""


def wrapped(lines: Sequence[str]) -> str:
    """Return lines of HTML with their style."""
    return f'<div class="aggarray-shown">{_STYLE}{"".join(f"<div>{line}</div>" for line in lines if line)}</div>'


def details(title: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    """Return named values that open on a click, "" without any."""
    if not pairs:
        return ""
    rows = [
        f"<tr><td>{escaped(name)}</td><td>{breakable(shortened(value, LONGEST))}</td></tr>" for name, value in pairs[:MOST_ROWS]
    ]
    rows += [f"<tr><td></td><td>... and {len(pairs) - MOST_ROWS} more</td></tr>"] * (len(pairs) > MOST_ROWS)
    return f"<details><summary>{escaped(title)}</summary><table><tbody>{''.join(rows)}</tbody></table></details>"


def words(array: Any) -> str:
    """Return dimensions, type and units of an array in one line.

    >>> from aggarray import MasterArray, SubArray
    >>> s = SubArray.from_array([[1.0, 2.0]], dimensions=("y", "x"), units="K")
    >>> words(MasterArray.from_subarrays([([(0, 1), (0, 2)], s)], dimensions=("y", "x")))
    '(y: 1, x: 2) float64 K'
    """
    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array.dimensions, array.shape, strict=True))
    return " ".join(str(w) for w in (f"({sizes})", array.dtype, array.units, array.calendar) if w)
