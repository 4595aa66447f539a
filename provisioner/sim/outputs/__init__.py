"""What simulated hosts print: the tools' own formats."""
