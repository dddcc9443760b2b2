"""What people see of arrays: HTML, plots, tables of facts, the report page."""
