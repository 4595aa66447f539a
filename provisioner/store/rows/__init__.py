"""Reads and writes of single tables; synchronous, inside a transaction, may be run twice."""
