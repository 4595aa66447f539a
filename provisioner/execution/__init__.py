"""Effects: collect, execute, validate, tenancy, artifacts. It decides nothing."""
