"""OpenTelemetry traces: one for each operation of a node, sent to a site's collector."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="traces",
    about="Traces of steps, to a collector of OpenTelemetry.",
    switched_on=lambda settings, _: bool(settings.trace_endpoint),
    telemetry="provisioner.integrations.traces.tracing:open_telemetry",
)
