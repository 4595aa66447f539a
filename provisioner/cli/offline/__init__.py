"""Verbs that need neither a daemon nor a database: the matrix, plans from files, inspection."""
