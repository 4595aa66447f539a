"""Repair cases decided: suspects, remedies, parts, tickets. Pure."""
