"""Diagrams of docs/learn/concepts.md, drawn from real arrays and distributions: see ``sample_data.pictures``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy as np

import aggarray as aa
from aggarray.dap import Block, Distribution
from sample_data.generate import TILES

HERE = Path(__file__).parent
CELL = 24
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948", "#8cd17d", "#d37295")
#: Those on which dark text is easier to read.
LIGHT = ("#f28e2b", "#76b7b2", "#edc948", "#8cd17d")
PLAIN = "#eef2f6"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text; colour None: no rectangle, "hole": dashed; ``pale``: a light colour."""

    x: float
    y: float
    width: float
    height: float
    text: str = ""
    colour: str | None = None
    pale: bool = False

    def drawn(self) -> str:
        """Return the SVG."""
        parts = []
        if self.colour == "hole":
            parts.append(self._rectangle('fill="none" stroke="#999" stroke-dasharray="4 3"'))
        elif self.colour is not None:
            edge = "#c4ccd4" if self.colour == PLAIN else "white"
            opacity = ' fill-opacity=".35"' if self.pale else ""
            parts.append(self._rectangle(f'fill="{self.colour}"{opacity} stroke="{edge}"'))
        on_page = self.colour in (None, "hole", PLAIN) or self.pale
        lines = self.text.split("\n") if self.text else []
        for number, line in enumerate(lines):
            y = self.y + self.height / 2 + 4 + 14 * (number - (len(lines) - 1) / 2)
            fill = "#333" if on_page else "#111" if self.colour in LIGHT else "white"
            parts.append(f'<text x="{self.x + self.width / 2:g}" y="{y:g}" fill="{fill}">{line}</text>')
        return "\n".join(parts)

    def _rectangle(self, style: str) -> str:
        return f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}" {style}/>'


@dataclass(frozen=True, slots=True)
class Arrow:
    """A straight arrow with a label above its middle."""

    x: float
    y: float
    to_x: float
    to_y: float
    text: str = ""

    @property
    def width(self) -> float:
        """The width to the right of its start."""
        return self.to_x - self.x

    @property
    def height(self) -> float:
        """The height below its start."""
        return self.to_y - self.y

    def drawn(self) -> str:
        """Return the SVG."""
        ends = f'x1="{self.x:g}" y1="{self.y:g}" x2="{self.to_x:g}" y2="{self.to_y:g}"'
        middle = f'x="{(self.x + self.to_x) / 2:g}" y="{(self.y + self.to_y) / 2 - 5:g}"'
        words = f'<text {middle} fill="#333">{self.text}</text>' if self.text else ""
        return f'<line {ends} stroke="#666" stroke-width="1.5" marker-end="url(#head)"/>{words}'


Shapes = Sequence[Box | Arrow]

_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>'
)


def svg(shapes: Shapes) -> str:
    """Return shapes as one picture."""
    width = max(s.x + s.width for s in shapes) + 4
    height = max(s.y + s.height for s in shapes) + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        _HEAD,
        '<rect width="100%" height="100%" fill="white"/>',
        *(shape.drawn() for shape in shapes),
        "</svg>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def colour(number: int) -> str:
    """Return the colour of a file or a process."""
    return COLOURS[number % len(COLOURS)]


def archive() -> Iterator[Box | Arrow]:
    """Draw the sample archive: sub-arrays in files above, the partitions that they serve below."""
    tas = aa.open(HERE / "archive")["tas"]
    yield Box(0, 46, 72, 30, "sub-arrays")
    yield Box(0, 150, 72, 30, "master array")
    for number, partition in enumerate(tas.partitions):
        data = partition.data
        assert data is not None and data.uri is not None
        start, stop = partition.location[0]
        left, width = 76 + start * 2, (stop - start) * 2
        odd = "\n".join(partition.pdimensions) if partition.pdimensions != tas.dimensions else ""
        odd = odd or ("north up" if partition.pdirections[1] is False else "") or (data.dtype.name if data.scale_factor else "")
        lines = [Path(data.uri).stem[-2:], str(data.format), str(partition.punits), odd]
        yield Box(left + 2, 0, width - 4, 120 - 4, "\n".join(line for line in lines if line), colour(number))
        yield Arrow(left + width / 2, 118, left + width / 2, 148)
        yield Box(left, 150, width, 30, f"{start}:{stop}", colour(number))
    yield Box(76, 182, 730, 20, f"{tas.shape[0]} days, {tas.units}, {' '.join(tas.dimensions)}")


def matrix(array: aa.MasterArray, left: float, title: str) -> Iterator[Box | Arrow]:
    """Draw a partition matrix of two dimensions: colours are files, pale cells virtual partitions, dashed ones missing."""
    side = 30
    ys, xs = (list(pairwise(edges.tolist())) for edges in array.partitions.edges)
    for i, j in product(range(len(ys)), range(len(xs))):
        (top, bottom), (west, east) = ys[i], xs[j]
        partition = array.partitions[i, j]
        where = left + west * side, 24 + top * side, (east - west) * side, (bottom - top) * side
        if partition.data is None:
            yield Box(*where, "", "hole")
        else:
            number = int(Path(str(partition.data.uri)).stem[-2:])
            yield Box(*where, str(number), colour(number - 1), pale=partition.virtual)
    yield Box(left, 0, xs[-1][1] * side, 20, title)


def tiles() -> Iterator[Box | Arrow]:
    """Draw the sample tiles as stored, and the matrix of their common refinement."""
    for number, (y, x) in enumerate(TILES):
        where = x.start * 30, 24 + y.start * 30, (x.stop - x.start) * 30, (y.stop - y.start) * 30
        yield Box(*where, str(number + 1), colour(number))
    yield Box(0, 0, 210, 20, "ten sub-arrays")
    yield Arrow(220, 144, 270, 144)
    value = aa.open(HERE / "tiles")["value"]
    yield from matrix(value, 280, f"{' x '.join(map(str, value.pmshape))} partitions")
    yield Arrow(500, 144, 550, 144)
    some = sorted(str(path) for path in (HERE / "tiles").iterdir() if path.stem[-2:] not in ("05", "08"))
    yield from matrix(aa.open(some)["value"], 560, "without tiles 5 and 8")


def runs() -> Iterator[Box | Arrow]:
    """Draw interleaving days: a virtual partition for every run."""
    first, second = [0, 1, 4, 5, 6, 10, 11], [2, 3, 7, 8, 9]
    for row, days in enumerate((first, second)):
        yield Box(0, row * 34, 70, CELL, f"file {'ab'[row]}")
        for place, day in enumerate(days):
            yield Box(74 + place * CELL, row * 34, CELL, CELL, str(day), colour(row))
    yield Box(0, 84, 70, CELL, "master array")
    left = 74.0
    for start, stop, row in ((0, 2, 0), (2, 4, 1), (4, 7, 0), (7, 10, 1), (10, 12, 0)):
        for day in range(start, stop):
            yield Box(left + (day - start) * CELL, 84, CELL, CELL, str(day), colour(row), pale=True)
        yield Box(left, 108, (stop - start) * CELL, 18, f"{start}:{stop}")
        left += (stop - start) * CELL + 6


def chain(steps: Sequence[str], width: float, top: float = 0.0) -> Iterator[Box | Arrow]:
    """Draw boxes in a row, with arrows between them."""
    for number, step in enumerate(steps):
        left = number * (width + 26)
        yield Box(left, top, width, 52, step, PLAIN)
        if number:
            yield Arrow(left - 24, top + 26, left - 2, top + 26)


def conforming() -> Iterator[Box | Arrow]:
    """Draw the steps from the values of a sub-array in a file to the master array."""
    yield from chain(
        (
            "stored\nvalues",
            "missing?\nvalid?",
            "unpack",
            "convert\nunits",
            "order and\ndirection",
            "cast to\nmaster type",
            "place",
        ),
        76,
    )


def rules() -> Iterator[Box | Arrow]:
    """Draw how variables of files become arrays."""
    steps = (
        "variables\nof files",
        "same\nquantity?",
        "same\ndataset?",
        "coordinates\nequal or sorted?",
        "no overlap?\nenough covered?",
        "one array",
    )
    yield from chain(steps, 92)
    for number in range(1, 5):
        middle = number * 118 + 46
        yield Arrow(middle, 54, middle, 82)
    yield Box(118, 84, 446, 28, "separate: an array of its own, and a refusal with the reason", "hole")


def index() -> Iterator[Box | Arrow]:
    """Draw an index between the files and a later session."""
    for number in range(3):
        yield Box(0, number * 34, 70, 28, f"file {number + 1}", colour(number))
        yield Arrow(72, number * 34 + 14, 168, 48, "scan" if number == 0 else "")
    yield Box(170, 22, 90, 52, "arrays", PLAIN)
    yield Arrow(262, 48, 338, 48, "save")
    yield Box(340, 22, 90, 52, "index:\nnames, places,\ncoordinates", PLAIN)
    yield Arrow(432, 48, 508, 48, "open")
    yield Box(510, 22, 90, 52, "arrays", PLAIN)
    yield Arrow(72, 128, 553, 128, "read: bytes of the stored chunks, from the files")
    yield Arrow(555, 128, 555, 78)


Rows = Sequence[tuple[str, Sequence[tuple[str, int | None]]]]


def strips(rows: Rows, left: float, title: str) -> Iterator[Box | Arrow]:
    """Draw rows of cells, each with a text and the process that sets its colour; None: an empty cell."""
    widest = max(len(cells) for _, cells in rows)
    yield Box(left + 66, 0, max(widest * CELL, 60), 20, title)
    for number, (name, cells) in enumerate(rows):
        top = 26 + number * 32
        yield Box(left, top, 64, CELL, name)
        for place, (text, owner) in enumerate(cells):
            yield Box(left + 66 + place * CELL, top, CELL, CELL, text, "hole" if owner is None else colour(owner))


def moved(before: Rows, after: Rows, words: str) -> Iterator[Box | Arrow]:
    """Draw the buffers of processes before and after an exchange."""
    yield from strips(before, 0, "before")
    right = 66 + max(len(cells) for _, cells in before) * CELL + 14
    middle = 26 + 16 * max(len(before), len(after)) - 6
    yield Arrow(right, middle, right + 96, middle, words)
    yield from strips(after, right + 100, "after")


def broadcast() -> Iterator[Box | Arrow]:
    """Draw a broadcast: the buffer of one process, copied to all."""
    cells = [(text, 0) for text in "abc"]
    yield from moved(
        [("process 0", cells), *((f"process {n}", []) for n in (1, 2))],
        [(f"process {n}", cells) for n in range(3)],
        "broadcast",
    )


def sum_reduce() -> Iterator[Box | Arrow]:
    """Draw a sum reduction: the buffers of all processes, added on one."""
    values = np.arange(1, 10).reshape(3, 3)
    before = [(f"process {n}", [(str(v), n) for v in row]) for n, row in enumerate(values.tolist())]
    after = [("process 0", [(str(v), 0) for v in values.sum(axis=0).tolist()]), ("process 1", []), ("process 2", [])]
    yield from moved(before, after, "sum-reduce")


def repartition() -> Iterator[Box | Arrow]:
    """Draw a repartition from blocks to cyclic; colours are the previous owners."""
    source, target = (Distribution.regular((9,), letter, (3,)) for letter in "bc")
    yield from moved(_buffers(source, source), _buffers(target, source), "repartition")


def halo() -> Iterator[Box | Arrow]:
    """Draw communication padding, filled from the neighbours."""
    padded = Distribution((Block.even(12, 3, padding=[(0, 1), (1, 1), (1, 0)]),))
    after = _buffers(padded, padded)
    before = [
        (name, [(text, owner) if owner == rank else ("", None) for text, owner in cells])
        for rank, (name, cells) in enumerate(after)
    ]
    yield from moved(before, after, "halo exchange")


def _buffers(what: Distribution, owners: Distribution) -> list[tuple[str, list[tuple[str, int | None]]]]:
    """Return the buffers of all processes by global index, in the colours of the owners in another distribution."""
    result = []
    for rank in range(what.nprocs):
        (indices,) = what.indices(rank)
        cells: list[tuple[str, int | None]] = [(str(g), int(owners.owner((g,)))) for g in indices.tolist()]
        result.append((f"process {rank}", cells))
    return result


#: Functions that draw each diagram, by file name.
DIAGRAMS: dict[str, Callable[[], Iterator[Box | Arrow]]] = {
    "archive": archive,
    "tiles": tiles,
    "runs": runs,
    "conforming": conforming,
    "rules": rules,
    "index": index,
    "broadcast": broadcast,
    "sum-reduce": sum_reduce,
    "repartition": repartition,
    "halo": halo,
}


def diagram(name: str) -> str:
    """Return a diagram as SVG text."""
    return svg(list(DIAGRAMS[name]()))
