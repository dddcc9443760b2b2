"""CF conventions: units, calendars, labels, packing and missing values."""
