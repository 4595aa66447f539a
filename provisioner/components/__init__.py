"""What has a version: one file per kind of thing; `ALL` is the table of contents. Data, no I/O."""
