"""What every floor runs on: clocks, the event loop, log context, the permit to act."""
