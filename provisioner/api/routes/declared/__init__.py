"""Routes of declarations: policies, hardware, and the files of the matrix."""
