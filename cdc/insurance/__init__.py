"""Slot insurance: what is done, step by step, before the server takes the slot away."""
