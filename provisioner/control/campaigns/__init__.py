"""Rolling upgrades: the choice of a campaign's next nodes, and the record of each."""
