"""SONiC over SSH and its management framework."""
