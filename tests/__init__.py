"""Tests, in the folders of the package; `support` holds what they share."""
