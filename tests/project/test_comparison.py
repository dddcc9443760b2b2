"""The table of docs/comparison.md: counts of the table of pairs, and results of programs for two further pairs."""

import importlib
import re
import shutil
from pathlib import Path

import pytest

from sample_data.pairs import write
from tests.project.test_cdo_nco import joining
from tests.project.test_peers import PEERS, outcome, table
from tests.support.paths import ROOT

ROWS = [
    [cell.strip() for cell in row.split("|")]
    for row in re.findall(r"^\| (.*) \|$", (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8"), re.MULTILINE)
]
#: The columns of the table of pairs, by column of this page.
NAMES = {"xarray": "open_mfdataset", "CDO": "mergetime", "NCO": "ncrcat"}
#: Pairs of this page alone, by row.
FURTHER = {
    "another order of dimensions": {"dimensions": ("lon", "time")},
    "other codecs and chunk shapes": {"stored": {"zlib": True, "chunksizes": (1, 2)}},
}
COLUMNS = next(row[1:] for row in ROWS if "CDO" in row)
CELLS = {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in ROWS if len(row) == 9 and row[1] != "---"}


def test_counts_are_those_of_the_pairs() -> None:
    pairs = table().values()
    labels = {"right, of twelve": "right", "separate, each right": "separate", "error": "error", "wrong": "wrong"}
    for row, word in labels.items():
        found = {name: sum(outcomes[NAMES.get(name, name)] == word for outcomes in pairs) for name in COLUMNS}
        assert found == {name: int(count) for name, count in CELLS[row].items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", COLUMNS)
def test_further_pairs(program: str, tmp_path: Path) -> None:
    name = NAMES.get(program, program)
    if name in PEERS:
        library, read = PEERS[name]
        try:
            importlib.import_module(library)
        except (ImportError, RuntimeError, OSError) as error:
            pytest.skip(f"{program} does not load: {error}")
    elif shutil.which(program.lower() if program == "CDO" else name) is None:
        pytest.skip(f"no {program}")
    else:
        read = joining(name, tmp_path)
    for row, difference in FURTHER.items():
        paths = [tmp_path / f"{letter}.nc" for letter in "ab"]
        write(paths[0], {"days": [0, 1]})
        write(paths[1], {"days": [2, 3], **difference})
        assert outcome(row, read, list(map(str, paths))) == CELLS[row][program], row
