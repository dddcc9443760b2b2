"""Reductions of arrays while their files are read."""
