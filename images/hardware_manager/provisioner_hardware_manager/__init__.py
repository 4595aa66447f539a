"""What the maintenance ramdisk can do for the daemon beyond ironic-python-agent's own steps."""
