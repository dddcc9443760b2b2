"""Layout of archives: how their files store values, compared with a profile.

`archives` collects facts of files and arrays, `checks` finds faults in them, `profiles` has the limits.
"""
