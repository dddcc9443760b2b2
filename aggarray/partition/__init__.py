"""Partition matrices: cut points, tiling, read plans, value conversion."""
