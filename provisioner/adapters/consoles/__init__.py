"""Serial consoles of hosts: the streams of BMCs, and the files in which their lines are kept."""
