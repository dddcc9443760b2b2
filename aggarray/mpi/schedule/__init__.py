"""Schedules of communication: broadcast, repartition, halos and reads.

The functions are pure: processes are ranks, and messages are selections of buffers. `transport` executes the schedules.
"""
