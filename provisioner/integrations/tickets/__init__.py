"""Adapters to systems that give work to people, behind `ports.tickets.TicketSystem`."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="tickets",
    about="Work for people: Jira, ServiceNow, PagerDuty, Slack, mail, or a webhook.",
    switched_on=lambda settings, _: settings.ticket_system != "none",
    tickets="provisioner.integrations.tickets.opening:open_tickets",
)
