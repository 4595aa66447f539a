"""Who drives an operation: embedded in one process, or DBOS among several daemons."""
