"""NVIDIA's Xid and SXid error catalogues: the meaning of a code and the action for it. Pure."""
