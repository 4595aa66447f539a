"""The gate of a release into a customer's network, and its proof. Pure."""
