"""Pictures of distributions: every element where it belongs, and those of the documentation as they are drawn now."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aggarray.dap import Block, Distribution, Map, picture
from aggarray.errors import ProtocolError
from sample_data.diagrams import DIAGRAMS
from sample_data.pictures import DRAWN, FOLDER, MATRICES, OVERVIEW, drawn
from tests.support.distributions import distributions, maps

NAME = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[list[str]]:
    """The texts of a picture by row, from the left."""
    rows: dict[int, list[tuple[int, str]]] = {}
    for one in ElementTree.fromstring(svg).iter(f"{NAME}text"):
        rows.setdefault(int(one.attrib["y"]), []).append((int(one.attrib["x"]), one.text or ""))
    return [[text for _, text in sorted(row)] for _, row in sorted(rows.items())]


@given(st.integers(0, 9).flatmap(lambda n: maps(n, "0.9.0", positions=False)))
def test_a_map_is_its_owners_and_buffers(m: Map) -> None:
    drawn = texts(picture(m))
    labels = np.unique(np.concatenate([m.owned(rank) for rank in range(m.nprocs)]))
    assert drawn[0] == ["owner", *map(str, m.owner(labels))]
    assert drawn[1:] == [[f"process {rank}", *map(str, m.indices(rank))] for rank in range(m.nprocs)]
    padding = sum(m.extent(rank) - m.num_owned(rank) for rank in range(m.nprocs))
    assert picture(m).count("fill-opacity") == padding


@given(distributions(most=2, largest=5))
def test_a_plane_shows_every_owner(d: Distribution) -> None:
    assume(len(d.maps) == 2 and all(d.shape) and all(m.owned(0).min(initial=0) >= 0 for m in d.maps))
    owners = d.owner(tuple(np.indices(d.shape)))
    assert texts(picture(d)) == [[str(owner) for owner in row] for row in owners.tolist()]


def test_what_is_no_picture() -> None:
    for wrong in (Distribution(()), Distribution.regular((2, 2, 2), "bbb", (1, 1, 1)), Block.even(65, 2), Block.even(5, 65)):
        with pytest.raises(ProtocolError, match="picture"):
            picture(wrong)
    assert "NaN" not in picture(Distribution.regular((0, 3), "bb", (1, 2)))


@pytest.mark.parametrize("name", [*DRAWN, OVERVIEW, *MATRICES, *DIAGRAMS])
def test_the_documentation_shows_what_is_drawn(name: str) -> None:
    path = FOLDER / f"{name}.svg"
    assert path.read_text(encoding="utf-8") == drawn(name), "python -m sample_data.pictures makes them again"
    assert path.stat().st_size < 12_000
    # Pictures of a fixed palette have a style for dark pages; those of a matrix have no text.
    assert name in MATRICES or ("prefers-color-scheme:dark" in drawn(name) and 'fill="white"/>' not in drawn(name))


def test_every_picture_is_shown() -> None:
    for page, names in (
        ("distributed-arrays.md", DRAWN),
        ("pictures.md", [OVERVIEW, *MATRICES]),
        ("learn/concepts.md", DIAGRAMS),
    ):
        text = (FOLDER.parent / page).read_text(encoding="utf-8")
        assert set(re.findall(r"images/([\w-]+)\.svg", text)) == set(names)
    assert {path.stem for path in FOLDER.glob("*.svg")} == {*DRAWN, OVERVIEW, *MATRICES, *DIAGRAMS}
