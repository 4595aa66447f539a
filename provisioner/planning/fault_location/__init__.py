"""Location of the node, link or leaf at fault, from tests among nodes. Pure."""
