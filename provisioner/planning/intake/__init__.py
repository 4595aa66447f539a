"""Hardware lists, NetBox and first readings compared with the order. Pure."""
