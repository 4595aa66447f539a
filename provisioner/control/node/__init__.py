"""One node's turn: observe, decide, act, record; and the scheduler that begins it."""
