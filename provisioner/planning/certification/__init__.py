"""The checks that a node needs, their evidence, and the certificate. Pure."""
