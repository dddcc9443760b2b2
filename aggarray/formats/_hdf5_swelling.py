"""Do the chunks of an HDF5 dataset decode to what they should? Asked before HDF5 decodes them, which takes whatever comes out.

Only chunks that could become very much more are decoded here first, by codecs that stop. Filters unknown here are HDF5's.
"""

import math
from typing import Any

from aggarray.codecs import decode, known
from aggarray.formats._hdf5_chunks import filters_of
from aggarray.formats.claims import MOST_INFLATED

#: What a chunk may become without a look: so many bytes, or so many times what it should.
_FREE, _TIMES = 1 << 26, 64


def check_swelling(dataset: Any) -> None:
    """Raise ValueError for a dataset (h5py's ``DatasetID``) with a chunk that decodes to other than it should."""
    import h5py

    made = dataset.get_create_plist()
    if made.get_layout() != h5py.h5d.CHUNKED or not made.get_nfilters():
        return
    steps = [made.get_filter(n) for n in range(made.get_nfilters())]
    filters = filters_of([(code, tuple(int(v) for v in values)) for code, _, values, _ in steps])
    if filters is None or not known(filters):
        return
    raw = math.prod(made.get_chunk()) * dataset.get_type().get_size()
    least = max(_FREE, _TIMES * raw) // MOST_INFLATED ** len(filters)
    doubtful: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        """Take down a chunk that has more bytes than need no look."""
        if chunk.size > least:
            doubtful.append(chunk.chunk_offset)

    dataset.chunk_iter(note)
    for start in doubtful:
        mask, packed = dataset.read_direct_chunk(start)
        decode(filters, packed, raw, mask)
