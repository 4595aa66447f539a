"""The composition root: the only place that puts the parts together."""
