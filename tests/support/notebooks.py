"""Execution of notebooks: ``python -m tests.support.notebooks [NAME ...]`` runs them again and stores their outputs.

Outputs contain nothing that differs from run to run: temporary folders have the name ``/tmp/notebook``.
"""

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.mpi import rank_environment
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "notebooks"
#: Seconds that a cell may take.
PATIENCE = 120
#: Names of temporary folders, in texts and in HTML.
_TEMPORARY = re.compile(r"/tmp/(<wbr>)?tmp\w{8}")


def environment() -> dict[str, str]:
    """Return the environment of a kernel: programs of this interpreter come first, Open MPI permits any number of ranks."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    open_mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mapping = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none"}
    return {**rank_environment(), "PATH": path, "TMPDIR": "/tmp", **open_mpi, **mapping}


def executed(path: Path, **variables: str) -> Any:
    """Return a notebook with the outputs of a new run, in a kernel with these variables in its environment."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    with tempfile.TemporaryDirectory() as settings:
        client.execute(env={**environment(), "IPYTHONDIR": settings, **variables})
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            data.update({kind: _TEMPORARY.sub(r"/tmp/\1notebook", text) for kind, text in data.items() if kind[:4] == "text"})
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def shrunk(png: str) -> str:
    """Return a figure (base64) in 48 colours, a third of the size."""
    from PIL import Image

    image = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(48).save(image, "PNG", optimize=True)
    return base64.b64encode(image.getvalue()).decode()


def main(*names: str) -> None:
    """Run notebooks, all by default, and store their outputs."""
    import nbformat

    for name in names or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        path = FOLDER / f"{name}.ipynb"
        notebook = executed(path)
        for cell in notebook["cells"]:
            for output in cell.get("outputs", ()):
                if "image/png" in (data := output.get("data", {})):
                    data["image/png"] = shrunk(data["image/png"])
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
