"""Steps of a plan: one module for each method of update, boot, erasure and reset."""
