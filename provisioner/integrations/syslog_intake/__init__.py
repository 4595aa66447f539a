"""Syslog of machines, over TLS and UDP, taken by a process of its own."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="syslog_intake",
    about="System logs that hosts and switches send.",
    switched_on=lambda settings, _: (
        settings.log_intake_port is not None or settings.log_intake_udp_port is not None
    ),
    log_intake="provisioner.integrations.syslog_intake.log_intake:open_log_intake",
)
