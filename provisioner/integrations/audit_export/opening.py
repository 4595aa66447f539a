"""Opens the receivers of the exported journal, as the settings name them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from provisioner.adapters.bounded_http import open_trust
from provisioner.daemon.telemetry import read_headers, read_version
from provisioner.integrations.audit_export.otlp import OtlpSink
from provisioner.integrations.audit_export.syslog import SyslogReceiver, SyslogSink
from provisioner.model.input_error import InputError
from provisioner.model.integrations.partition import is_loopback
from provisioner.ports import Clock
from provisioner.ports.alerts import AuditSink
from provisioner.settings import Settings


@asynccontextmanager
async def open_audit_sinks(settings: Settings, clock: Clock) -> AsyncIterator[Sequence[AuditSink]]:
    """Yield the receivers, and close their connections at the end. Raises InputError."""
    sinks: list[AuditSink] = []
    try:
        if settings.audit_syslog:
            sinks.append(_open_syslog(settings))
        if settings.audit_otlp_endpoint:
            sinks.append(_open_otlp(settings, clock))
        yield tuple(sinks)
    finally:
        for sink in sinks:
            await sink.close()


def _open_syslog(settings: Settings) -> SyslogSink:
    host, _, port = settings.audit_syslog.rpartition(":")
    identity = settings.audit_syslog_identity_file
    context = open_trust("audit_syslog_ca_file", settings.audit_syslog_ca_file)
    if identity:
        try:
            context.load_cert_chain(identity)
        except (OSError, ssl.SSLError) as error:
            problem = f"it is no certificate with its key ({error})"
            remedy = "Put the certificate and its unencrypted key into one PEM file."
            raise InputError("audit_syslog_identity_file", identity, problem, remedy) from None
    to = SyslogReceiver(
        host=host.strip("[]"),
        port=int(port),
        context=context,
        receipt=settings.audit_syslog_receipt,
        bytes_max=settings.audit_syslog_bytes_max,
    )
    return SyslogSink(to, settings.site)


def _open_otlp(settings: Settings, clock: Clock) -> OtlpSink:
    url = settings.audit_otlp_endpoint
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        problem = "the journal would be sent unencrypted"
        remedy = "Use https://; http:// is for a collector on this machine."
        raise InputError("audit_otlp_endpoint", url, problem, remedy)
    headers = read_headers("audit_otlp_headers_file", settings.audit_otlp_headers_file)
    context = open_trust("audit_otlp_ca_file", settings.audit_otlp_ca_file)
    return OtlpSink(url, headers, context, clock, (settings.site, read_version()))
