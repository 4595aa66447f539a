"""NVLink partitions of tenants, through NMX Manager or NetQ NVLink."""
