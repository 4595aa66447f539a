"""The words: frozen, closed records and closed lists. Pure: no I/O, no clock, no chance."""
