"""Hardware lists, NetBox and first readings compared with what was ordered. Pure."""
