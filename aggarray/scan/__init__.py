"""Scanning: discovery, comparison and scanning of files, and templates."""
