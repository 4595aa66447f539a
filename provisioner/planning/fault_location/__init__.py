"""Which node, link or leaf is at fault, from tests among nodes. Pure."""
