"""Posts of events to webhooks, behind `ports.webhooks.WebhookPosts`."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="webhooks",
    about="Signed events to receivers over HTTP.",
    webhook_posts="provisioner.integrations.webhooks.webhook_posts:open_posts",
)
