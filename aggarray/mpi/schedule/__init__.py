"""Schedules of communication: broadcast, repartition, halos and reads.

The functions are pure: processes are ranks, and messages are selections of buffers. `transport` executes the schedules.
"""

from aggarray.mpi.schedule.groups import broadcast_groups, kept_groups, neighbours
from aggarray.mpi.schedule.halo import halo_steps, halo_widths
from aggarray.mpi.schedule.overlap import Box, PlannedMessage, plan_receives, plan_sends

__all__ = [
    "Box",
    "PlannedMessage",
    "broadcast_groups",
    "halo_steps",
    "halo_widths",
    "kept_groups",
    "neighbours",
    "plan_receives",
    "plan_sends",
]
