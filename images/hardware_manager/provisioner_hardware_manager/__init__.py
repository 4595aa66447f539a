"""The steps that the maintenance ramdisk offers the daemon beyond ironic-python-agent's own."""
