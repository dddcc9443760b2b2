"""Large shuffled chunks, which are unshuffled a part at a time."""

import numpy as np
import pytest

from aggarray import codecs
from aggarray.codecs import Filter, _blosc_frame, decode_all, shuffle

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("itemsize", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [1040, 300_000])
def test_large_chunks_fill_no_frame_of_their_size(itemsize: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_LARGE_CHUNK", 1000)
    monkeypatch.setattr(shuffle, "_unshuffled", shuffle._LOAD)
    made: list[int] = []
    frame = _blosc_frame.Frame

    def make(item: int, transform: int, width: int, blocks: int = 1) -> _blosc_frame.Frame:
        made.append(width * blocks)
        return frame(item, transform, width, blocks)

    monkeypatch.setattr(_blosc_frame, "Frame", make)
    values = np.random.default_rng(itemsize).integers(0, 256, (2, size), np.uint8)
    stored = [row.reshape(-1, itemsize).T.tobytes() for row in values]
    out = np.empty_like(values)
    decode_all((Filter("shuffle", (itemsize,)),), stored, out)
    assert np.array_equal(out, values)
    assert max(made, default=0) <= shuffle._PIECE and 2 * size not in made
