"""What proves health: one file per check; `ALL` is the table of contents. Pure judges, no I/O."""
