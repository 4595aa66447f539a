"""The watch over idle and serving nodes: events, polls, ports, alerts, notices."""
