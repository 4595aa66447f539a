"""A twin of a site: simulated hardware at recorded versions, the real daemon, virtual time."""
