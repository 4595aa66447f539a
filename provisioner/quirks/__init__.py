"""What a vendor does differently, as data; `ALL` is the table of contents. No I/O."""
