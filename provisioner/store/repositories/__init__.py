"""Records by aggregate: alerts, campaigns, cases, runs, webhooks; secrets and signing keys."""
