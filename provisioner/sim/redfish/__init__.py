"""The simulated Redfish service, shape by shape of vendor."""
