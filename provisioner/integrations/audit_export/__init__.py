"""Receivers of the exported journal: syslog over TLS, and OpenTelemetry's logs over HTTP."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="audit_export",
    about="The journal, exported over syslog and to a collector of OpenTelemetry.",
    switched_on=lambda settings, _: bool(settings.audit_syslog or settings.audit_otlp_endpoint),
    audit_sinks="provisioner.integrations.audit_export.opening:open_audit_sinks",
)
