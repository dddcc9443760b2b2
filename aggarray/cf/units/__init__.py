"""Comparison and conversion of units and calendars (CF 3.1, 4.4).

`udunits` converts plain units by cf_units; `calendars` converts reference times exactly, by integer arithmetic on day numbers.
`linear` represents a conversion, y = slope * x + offset; `compatibility` caches it. Blank units become None.
"""
