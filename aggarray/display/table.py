"""Tables as plain text, fitted to the width of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from aggarray.display.markup import printable, without_credentials
from aggarray.partition.file_names import common_folder

#: Of more rows than this, representations show the first ones.
MOST_ROWS = 60
#: The characters of a line, except on a terminal.
WIDTH = 120
#: The width below which no column is shortened.
NARROWEST = 8
#: The width of a column beside whole ones.
_LEAST = 6
#: Between columns.
_GAP = "  "


def terminal_width() -> int | None:
    """Return the columns of the terminal, None if output goes elsewhere."""
    import shutil
    import sys

    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def line_width() -> int:
    """Return the width of the terminal, or that of a notebook."""
    return terminal_width() or WIDTH


def shortened_middle(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters, its middle left out.

    >>> shortened_middle("EC-Earth3-AerChem", 11)
    'EC-Ea…rChem'
    >>> shortened_middle("(time: 1980, plev: 19, lat: 192, lon: 288)", 26)
    '(time: 1980, …, lon: 288)'
    >>> shortened_middle("(time: 1980, plev: 19, lat: 192, lon: 288)", 18)
    '(time: 1980, …)'
    """
    if len(text) <= most:
        return text
    words = text.split(", ")
    if len(words) > 1 and len(words[0]) + 4 <= most < len(words[0]) + len(words[-1]) + 5:
        return f"{words[0]}, …{')' * text.endswith(')')}"
    for left_out in range(1, len(words) - 1):
        first = (len(words) - left_out + 1) // 2
        fitted = ", ".join([*words[:first], "…", *words[first + left_out :]])
        if len(fitted) <= most:
            return fitted
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def table(
    rows: Sequence[Sequence[Any]],
    head: Sequence[str],
    *,
    width: int | None = None,
    right: Collection[str] = (),
    wrap: str = "",
    whole: Collection[str] = (),
    optional: str = "",
) -> str:
    """Return rows under a head as text in aligned columns.

    Numbers, and the columns named in ``right``, are aligned to the right. ``width``: the most characters of a line, None: any
    number; then long texts lose their middle, except in the columns ``whole``, and the texts of the column ``wrap`` continue on
    further lines. The column ``optional`` is left out where there is no space for more than a few characters.

    >>> print(table([["tas", 12], ["pr", 3]], ["name", "files"]))
    name  files
    ----  -----
    tas      12
    pr        3
    """
    # promise: escape-tables
    cells = [[printable("" if item is None else item) for item in row] for row in (head, *rows)]
    numeric = [name in right or _are_numbers([row[i] for row in rows]) for i, name in enumerate(head)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    heads = [[name] for name in cells[0]]
    if width is not None and sum(widths) + len(_GAP) * (len(head) - 1) > width:
        below = [max((len(row[i]) for row in cells[1:]), default=0) for i in range(len(head))]
        floors = [max(map(len, _head(name, 0))) for name in cells[0]]
        widths = [max(own, floor) for own, floor in zip(below, floors, strict=True)]
        is_whole = [name in whole or number for name, number in zip(head, numeric, strict=True)]
        fitted = _fitted(widths, [name == wrap for name in head], is_whole, floors, width - len(_GAP) * (len(head) - 1))
        if optional in head and fitted[cut := head.index(optional)] < min(widths[cut], 2 * NARROWEST):
            kept = [[item for n, item in enumerate(row) if n != cut] for row in (head, *rows)]
            return table(kept[1:], kept[0], width=width, right=right, wrap=wrap, whole=whole)
        widths, heads = fitted, [_head(name, w) for name, w in zip(cells[0], fitted, strict=True)]
    rule = [["-" * w] for w in widths]
    rest = [[_block(text, w, name == wrap) for text, w, name in zip(row, widths, head, strict=True)] for row in cells[1:]]
    return "\n".join(line for block in (heads, rule, *rest) for line in _lines(block, widths, numeric))


def _are_numbers(items: Sequence[Any]) -> bool:
    return bool(items) and all(_is_number(item) for item in items if item is not None)


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _head(name: str, width: int) -> list[str]:
    """Return the lines of a name, cut after "_" if wider than its column.

    >>> _head("grid_label", 3), _head("table_id", 8), _head("files", 3)
    (['grid_', 'label'], ['table_id'], ['files'])
    """
    first, underscore, rest = name.partition("_")
    return [name] if len(name) <= width or not rest else [first + underscore, rest]


def _fitted(widths: list[int], wraps: list[bool], whole: list[bool], floors: list[int], most: int) -> list[int]:
    """Return widths of a sum of at most ``most``: the widest shrink.

    A column that wraps becomes narrower first, to half of the line; whole ones shrink last, none below its floor.
    """
    fitted = list(widths)
    for i in [i for i, is_wrapped in enumerate(wraps) if is_wrapped]:
        fitted[i] = min(fitted[i], max(most - sum(fitted) + fitted[i], most // 2, NARROWEST))
    while sum(fitted) > most:
        for least, last in ((NARROWEST, False), (_LEAST, False), (NARROWEST, True)):
            columns = [i for i, w in enumerate(fitted) if w > max(least, floors[i]) and (last or not whole[i])]
            if columns:
                break
        if not columns:
            break
        fitted[max(columns, key=lambda i: fitted[i])] -= 1
    return fitted


def _block(text: str, width: int, wraps: bool) -> list[str]:
    """Return the lines of a cell."""
    return wrapped(text, width) if wraps else [shortened_middle(text, width)]


def wrapped(text: str, width: int | None) -> list[str]:
    """Return the lines of a text, broken between words."""
    if width is None or len(text) <= width:
        return [text]
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [shortened_middle(line, width) for line in lines]


def _lines(block: list[list[str]], widths: list[int], numeric: list[bool]) -> list[str]:
    """Return the lines of a row of cells."""
    lines = []
    for number in range(max(map(len, block), default=1)):
        texts = [cell[number] if number < len(cell) else "" for cell in block]
        padded = [t.rjust(w) if n else t.ljust(w) for t, w, n in zip(texts, widths, numeric, strict=True)]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def relative_names(files: Sequence[str]) -> tuple[str, list[str]]:
    """Return a line with the common folder of files, and their names in it."""
    files = list(map(without_credentials, files))
    folder = common_folder(files)
    if not folder:
        return "", list(files)
    return f"in {printable(folder)}\n", [file[len(folder) :].lstrip("/") if file.startswith(folder) else file for file in files]


def complete(lines: list[str], more: int) -> str:
    """Return lines as text, with the number of those that are left out."""
    return "\n".join([*lines, *([f"... and {more} more"] if more > 0 else [])])
