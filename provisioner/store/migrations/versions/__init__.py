"""The changes of the schema in order; `revision` and `down_revision` link them."""
