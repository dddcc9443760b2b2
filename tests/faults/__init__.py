"""Fault tests: damaged, truncated, missing and hostile files, killed processes, full disks."""
