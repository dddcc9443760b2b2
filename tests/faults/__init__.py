"""What becomes of faults: files that are damaged, cut short or taken away, checksums that do not agree."""
