"""Repair cases: remedies, tickets, parts that were exchanged."""
