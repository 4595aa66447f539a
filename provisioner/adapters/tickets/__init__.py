"""Adapters to systems that give work to people, behind `ports.tickets.TicketSystem`."""
