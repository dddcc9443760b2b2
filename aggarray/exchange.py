"""Geometry of exchanges between processes: halo widths, broadcast groups.

Needs no MPI.
"""

from aggarray.mpi.schedule import broadcast_groups, halo_widths

__all__ = ["broadcast_groups", "halo_widths"]
