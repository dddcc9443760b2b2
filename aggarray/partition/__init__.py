"""Partition matrices held in columns: cut points, tiling, read plans, conforming values to the master array."""
