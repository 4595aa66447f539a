"""Verbs that read or change a site: nodes, cases, campaigns, tenants, certificates."""
