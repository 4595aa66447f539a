"""The output of simulated hosts, in the tools' own formats."""
