"""Webhooks: their receivers, changes of them, and posts of events to them."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="webhooks",
    about="Signed events to receivers over HTTP.",
    webhook_posts="provisioner.integrations.webhooks.webhook_posts:open_posts",
    routes="provisioner.integrations.webhooks.webhook_routes:ROUTES",
    changes="provisioner.integrations.webhooks.webhook_changes:CHANGES",
)
