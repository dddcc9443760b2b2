"""CF conventions: units, calendars, coordinate labels, packing and missing values."""
