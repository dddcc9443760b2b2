"""Geometry of exchanges between processes: halo widths, broadcast groups.

Needs no MPI.
"""

from __future__ import annotations

from aggarray.mpi.schedule.groups import broadcast_groups
from aggarray.mpi.schedule.halo import halo_widths

__all__ = ["broadcast_groups", "halo_widths"]
