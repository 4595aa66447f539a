"""Adapters of a daemon beside adopted nodes: each port behind the gate of capabilities.

The daemon is composed of these alone, so that no part of it holds a port that goes past the gate.
Readings pass. An act finds out which adopted nodes it concerns, and needs its capability over each
of them: `runtime/permit.py`.
"""
