"""Settings of BIOS and BMC through Redfish: read, parsed, and written."""
