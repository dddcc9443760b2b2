"""Check of the decoded sizes of HDF5 chunks before the library decodes them.

HDF5 does not limit the decoded size of a chunk. Chunks that could decode to far more than expected are first decoded here, with
codecs that stop at a limit, down to the first unknown filter.
"""

import math
from typing import Any

from aggarray.codecs import Filter, decode, decode_at_most, known, most_decoded
from aggarray.formats.hdf5.chunk_index import filter_of
from aggarray.formats.limits import MOST_INFLATED

#: Decoded size up to which a chunk is not checked: bytes, and multiples of the expected size.
_FREE, _TIMES = 1 << 26, 64
#: Bound on the size of a chunk encoded by unknown filters: multiples of the raw size, and additional bytes.
_ENCODED, _SLACK = 8, 1 << 16


def check_decoded_sizes(dataset: Any) -> None:
    """Raise ValueError if a chunk of a dataset (h5py's ``DatasetID``) decodes to an unexpected size."""
    import h5py

    properties = dataset.get_create_plist()
    if properties.get_layout() != h5py.h5d.CHUNKED or not properties.get_nfilters():
        return
    steps = [properties.get_filter(n) for n in range(properties.get_nfilters())]
    filters = [filter_of(code, tuple(int(v) for v in values)) for code, _, values, _ in steps]
    first = _first_known(filters)
    known_filters = tuple(f for f in filters[first:] if f is not None)
    if not known_filters:
        return
    raw = math.prod(properties.get_chunk()) * dataset.get_type().get_size()
    ratios = [most_decoded(known_filters, stored) for stored in (0, 1)]
    growth = MOST_INFLATED ** len(known_filters) if ratios[0] is None or ratios[1] is None else ratios[1] - ratios[0]
    least = max(_FREE, _TIMES * raw) // min(growth, MOST_INFLATED ** len(known_filters))
    suspect: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        """Record a chunk that is large enough to need a check."""
        if chunk.size > least:
            suspect.append(chunk.chunk_offset)

    # promise: hdf5-chunk-decoded-size
    dataset.chunk_iter(note)
    for start in suspect:
        mask, packed = dataset.read_direct_chunk(start)
        if first and mask & ((1 << first) - 1) != (1 << first) - 1:
            # promise: hdf5-known-filter-prefix
            decode_at_most(known_filters, packed, _ENCODED * raw + _SLACK, mask >> first)
        else:
            decode(known_filters, packed, raw, mask >> first)


def _first_known(filters: list[Filter | None]) -> int:
    """Return the position of the first filter after the last unknown one; decoding starts with these known filters."""
    for number in reversed(range(len(filters))):
        step = filters[number]
        if step is None or not known((step,)):
            return number + 1
    return 0
