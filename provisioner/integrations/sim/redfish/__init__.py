"""The simulated Redfish service, one shape per vendor."""
