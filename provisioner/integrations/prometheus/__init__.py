"""`/metrics` for Prometheus: what the daemon measures, and the fleet as a scrape finds it."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="prometheus",
    about="Metrics of the daemon and of the fleet, for Prometheus.",
    switched_on=lambda settings, environ: settings.metrics_port is not None,
    metrics="provisioner.integrations.prometheus.metrics:Metrics",
)
