"""Comparison and conversion of units and calendars (CF 3.1, 4.4).

`udunits` handles plain units, through cf_units. Reference times are exact integer arithmetic on day numbers (`calendars`). A
conversion is y = slope * x + offset (`linear`), and is cached (`compatibility`). Blank units are None.
"""
