"""Settings of machines: from meanings to attributes and values, checked before they are sent."""
