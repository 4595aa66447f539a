"""How a switch operating system speaks: bodies and readings as pure functions. No I/O."""
