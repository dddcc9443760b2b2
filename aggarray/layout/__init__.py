"""Layout of archives: how files store values, against a profile.

`archives` collects facts of files and arrays, `checks` finds faults in them, `profiles` has the limits.
"""
