"""Adapters to power distribution units, behind `ports.power.Pdu`; none keeps a state of its own."""
