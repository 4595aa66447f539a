"""The ironic-python-agent protocol: lookup and heartbeat in, commands out."""
