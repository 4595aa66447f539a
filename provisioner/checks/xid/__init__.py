"""NVIDIA's Xid and SXid error catalogues: what a code means and what it calls for. Pure."""
