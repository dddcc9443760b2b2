"""Do the chunks of an HDF5 dataset decode to what they should? Asked before HDF5 decodes them, which takes whatever comes out.

Only chunks that could become very much more are decoded here first, by codecs that stop, up to the first filter that is unknown
here: that one is HDF5's.
"""

import math
from typing import Any

from aggarray.codecs import Filter, decode, decode_at_most, known, most_decoded
from aggarray.formats.hdf5.chunk_index import filter_of
from aggarray.formats.limits import MOST_INFLATED

#: What a chunk may become without a look: so many bytes, or so many times what it should.
_FREE, _TIMES = 1 << 26, 64
#: Filters unknown here make at most so many times the bytes of a chunk, and so many more, of those that they encode.
_ENCODED, _SLACK = 8, 1 << 16


def check_decoded_sizes(dataset: Any) -> None:
    """Raise ValueError for a dataset (h5py's ``DatasetID``) with a chunk that decodes to other than it should."""
    import h5py

    made = dataset.get_create_plist()
    if made.get_layout() != h5py.h5d.CHUNKED or not made.get_nfilters():
        return
    steps = [made.get_filter(n) for n in range(made.get_nfilters())]
    filters = [filter_of(code, tuple(int(v) for v in values)) for code, _, values, _ in steps]
    first = _first_known(filters)
    own = tuple(f for f in filters[first:] if f is not None)
    if not own:
        return
    raw = math.prod(made.get_chunk()) * dataset.get_type().get_size()
    ratios = [most_decoded(own, stored) for stored in (0, 1)]
    growth = MOST_INFLATED ** len(own) if ratios[0] is None or ratios[1] is None else ratios[1] - ratios[0]
    least = max(_FREE, _TIMES * raw) // min(growth, MOST_INFLATED ** len(own))
    doubtful: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        """Take down a chunk that has more bytes than need no look."""
        if chunk.size > least:
            doubtful.append(chunk.chunk_offset)

    # promise: hdf5-chunk-decoded-size
    dataset.chunk_iter(note)
    for start in doubtful:
        mask, packed = dataset.read_direct_chunk(start)
        if first and mask & ((1 << first) - 1) != (1 << first) - 1:
            # promise: hdf5-known-filter-prefix
            decode_at_most(own, packed, _ENCODED * raw + _SLACK, mask >> first)
        else:
            decode(own, packed, raw, mask >> first)


def _first_known(filters: list[Filter | None]) -> int:
    """Return the number of the filter from which on all are known here: they are undone before those that are not."""
    for number in reversed(range(len(filters))):
        step = filters[number]
        if step is None or not known((step,)):
            return number + 1
    return 0
