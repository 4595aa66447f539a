"""Simulated racks (NVL72): trays, NVLink switches, power shelves and the water in them.

Shapes are those of public trees (docs/sources/hardware.md#racks); the behaviour follows NVIDIA's
guides where they say it. Every duration is a placeholder: no rack was measured.
"""
