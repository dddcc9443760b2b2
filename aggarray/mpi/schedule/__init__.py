"""Who sends what to whom? Schedules of broadcast, sum-reduce, repartition and halo exchange, and how chunks are dealt out.

Pure: processes are numbers here, and what they send are selections of their buffers. `transport` carries schedules out.
"""

from aggarray.mpi.schedule.groups import broadcast_groups, kept_groups, neighbours, union
from aggarray.mpi.schedule.halo import halo_steps, halo_widths
from aggarray.mpi.schedule.overlap import Box, PlannedMessage, incoming, outgoing

__all__ = [
    "Box",
    "PlannedMessage",
    "broadcast_groups",
    "halo_steps",
    "halo_widths",
    "incoming",
    "kept_groups",
    "neighbours",
    "outgoing",
    "union",
]
