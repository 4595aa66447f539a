"""Records exchanged with other systems: NetBox, ticket systems and receivers of webhooks."""
