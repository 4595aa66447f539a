"""Decisions about repair cases: suspects, remedies, parts, tickets. Pure."""
