"""Records and closed lists of the domain. Pure: no I/O, no clock, no randomness."""
