"""Pictures of the documentation: ``python -m sample_data.pictures``."""

import re
from pathlib import Path

import aggarray as aa
from aggarray.dap import Block, Cyclic, Distribution, Map, Unstructured, picture
from aggarray.display.matrix import svg
from sample_data.diagrams import DIAGRAMS, diagram
from sample_data.overview import picture as overview_picture

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"

#: Pictures of docs/distributed-arrays.md, by file name: a map for each type of distribution, and a grid of processes.
DRAWN: dict[str, Map | Distribution] = {
    "block": Block.even(14, 3),
    "irregular": Block([0, 2, 9, 14]),
    "padded": Block.even(14, 3, padding=(2, 2)),
    "wrapped": Block.even(14, 3, padding=(2, 2), periodic=True, outer="wrap"),
    "cyclic": Cyclic(14, 3),
    "block-cyclic": Cyclic(14, 3, block_size=2),
    "unstructured": Unstructured(14, [[9, 4, 0, 13], [2, 1, 7, 12, 5], [3, 6, 8, 10, 11]], one_to_one=True),
    "grid": Distribution.regular((6, 14), "bc", (2, 2), block_size={1: 3}),
}


#: Sample data and height of each picture of a partition matrix, by file name.
MATRICES = {"matrix-archive": ("archive", 24), "matrix-tiles": ("tiles", 96)}
#: The picture of the overview of a page.
OVERVIEW = "overview"
#: Colours of text, edges and plain boxes on light and on dark pages.
STYLE = (
    "<style>text:not([fill]){fill:#333}.cell{stroke:#fff}.plain{fill:#eef2f6;stroke:#c4ccd4}@media(prefers-color-scheme:dark)"
    "{text:not([fill]){fill:#ddd}.cell{stroke:#131416}.plain{fill:#2b3138;stroke:#59626c}}</style>"
)


def adaptive(svg: str) -> str:
    """Return a picture on a white ground as one for light and dark pages, without a ground."""
    svg = svg.replace('<rect width="100%" height="100%" fill="white"/>', STYLE)
    svg = re.sub(r'(<text [^>]*?) fill="#(?:222|333|555)"', r"\1", svg)
    return svg.replace(' stroke="white"', ' class="cell"').replace('fill="#eef2f6" stroke="#c4ccd4"', 'class="plain"')


def drawn(name: str) -> str:
    """Return a picture as SVG text."""
    if name in DRAWN:
        return adaptive(picture(DRAWN[name]))
    if name in DIAGRAMS:
        return adaptive(diagram(name))
    if name == OVERVIEW:
        return adaptive(overview_picture())
    data, height = MATRICES[name]
    return svg(aa.open(FOLDER.parents[1] / "sample_data" / data).arrays[0], most=height) + "\n"


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name in (*DRAWN, OVERVIEW, *MATRICES, *DIAGRAMS):
        (FOLDER / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
