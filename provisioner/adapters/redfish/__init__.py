"""The Redfish adapter: transport (effects), client (verbs), parsing (pure)."""
