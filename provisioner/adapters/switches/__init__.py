"""The operating systems of switches: one package for each."""
