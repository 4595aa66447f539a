"""Judgement of readings and events of watched nodes, and the reports about them. Pure."""
