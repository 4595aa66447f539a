"""Readers of other parties' version documents, and the draft of an overlay. Pure: no I/O."""
