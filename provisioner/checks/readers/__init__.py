"""Readers of tool output that several checks share: text in, records out. Pure."""
