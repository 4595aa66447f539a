"""Times of the domain: instants, and the zones in which people name them."""
