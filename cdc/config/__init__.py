"""What the program is told: one table of settings, and where each value came from."""
