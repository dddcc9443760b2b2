"""Scanning: file discovery, worker processes, comparison of similar files, resolution of templates."""
