"""Geometry of exchanges between processes, without MPI: widths of halos, groups of a broadcast."""

from aggarray.mpi.schedule import broadcast_groups, halo_widths

__all__ = ["broadcast_groups", "halo_widths"]
