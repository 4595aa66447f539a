"""Work among nodes and switches: fabric sessions, cohorts, tenants' networks."""
