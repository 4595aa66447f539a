"""Receivers of the exported journal: syslog over TLS, and OpenTelemetry's logs over HTTP."""
