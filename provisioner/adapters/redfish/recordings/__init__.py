"""Recordings of BMCs: the walk, the pseudonyms, the file, and the transport over it."""
