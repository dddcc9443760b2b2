"""Pages of notebooks: an extension of Sphinx.

A page shows the text, the code and the stored outputs of a notebook. Building it executes nothing and needs no Jupyter.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

#: Longer than any fence in a cell.
FENCE = "`" * 8
_HINT = "This page is a notebook: {{download}}`{name}`. [Run it](index.md) in a copy of the repository."


def page(text: str, name: str) -> str:
    """Return a notebook (its JSON) as Markdown; the link to the file follows the title."""
    cells = json.loads(text)["cells"]
    title, _, rest = "".join(cells[0]["source"]).partition("\n")
    parts = [title, _HINT.format(name=name), rest.strip()]
    for cell in cells[1:]:
        parts += code(cell) if cell["cell_type"] == "code" else ["".join(cell["source"])]
    return "\n\n".join(parts) + "\n"


def code(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the blocks of a cell of code: its source, then its outputs."""
    source = "".join(cell["source"])
    yield block("sh" if source.startswith("!") else "python", source.removeprefix("!"))
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield block("text", "".join(output["text"]), "output")
            continue
        data = {kind: value if isinstance(value, str) else "".join(value) for kind, value in output["data"].items()}
        if "image/png" in data:
            image = "".join(data["image/png"].split())
            yield raw(f'<img class="output" alt="{cell["metadata"]["alt"]}" src="data:image/png;base64,{image}">')
        elif html := data.get("image/svg+xml", data.get("text/html")):
            yield raw(f'<div class="output">{html}</div>')
        else:
            yield block("text", data["text/plain"], "output")


def block(language: str, text: str, style: str = "") -> str:
    """Return a block of code."""
    return f"{FENCE}{{code-block}} {language}\n" + (f":class: {style}\n" if style else "") + f"\n{text.rstrip()}\n{FENCE}"


def raw(html: str) -> str:
    """Return a block of HTML."""
    return f"{FENCE}{{raw}} html\n{html}\n{FENCE}"


def convert(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the source of a page by Markdown if it is a notebook."""
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".ipynb":
        source[0] = page(source[0], path.name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.add_source_suffix(".ipynb", "markdown")
    app.connect("source-read", convert)
    return {"parallel_read_safe": True}
