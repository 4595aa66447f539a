"""The journey of a node: the table of states and the decision of one turn. Pure."""
