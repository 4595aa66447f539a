"""What readings and events of a watched node mean, and what is reported of them. Pure."""
