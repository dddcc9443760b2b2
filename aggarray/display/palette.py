"""Colours and hatches of pictures on pages, in notebooks and in plots.

A file has a colour, and values in memory are grey. White lines across mark a virtual partition, which shows a part of its
file's variable. A red frame with crossed lines marks a hole, which no file covers. On a shared time axis, data have one colour,
gaps are red, overlaps are amber.
"""

#: Of values in memory.
from __future__ import annotations

MEMORY = "#888888"
#: Of lines across virtual partitions.
VIRTUAL = "#ffffff"
#: Of parts of a time axis, and of holes; distinguishable from a light and a dark page.
DATA, GAP, OVERLAP, HOLE = "#4e79a7", "#d43f3a", "#e0a100", "#d43f3a"
#: Hatches of matplotlib for virtual partitions and holes.
VIRTUAL_HATCH, HOLE_HATCH = "///", "xxx"
#: Distance of the lines of a hatch in pixels.
_STEP = 7.0


def hatch(left: float, top: float, width: float, height: float, rising: bool = True) -> str:
    """Return parallel lines across a box as an SVG path.

    >>> hatch(0, 0, 4, 4), hatch(0, 0, 4, 4, rising=False)
    ('M0.0 4.0L4.0 0.0', 'M0.0 0.0L4.0 4.0')
    """
    count = max(round((width + height) / _STEP), 2)
    lines = []
    for number in range(1, count):
        at = number * (width + height) / count
        # From the left or lower edge to the upper or right edge.
        x0, y0 = max(at - height, 0.0), min(at, height)
        x1, y1 = min(at, width), max(at - width, 0.0)
        ys = (y0, y1) if rising else (height - y0, height - y1)
        lines.append(f"M{left + x0:.1f} {top + ys[0]:.1f}L{left + x1:.1f} {top + ys[1]:.1f}")
    return "".join(lines)
