"""Display of arrays: HTML, plots, tables of facts, the report page."""
