"""The process's foundations: clocks, the event loop, log context, the permit to act on devices."""
