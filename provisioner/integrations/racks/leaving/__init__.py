"""Units of racks that leave for good: what has to be proved, what is sent, what is done by hand."""
