"""Adapters of a daemon that only observes: each port over its read-only counterpart.

`sources` narrows the real adapters to the read-only ports; the other modules are the ports that the
daemon uses, and hold nothing but those. A request that would change a device has no method to
leave by: it is refused as `LookOnly`, and counted.
"""
