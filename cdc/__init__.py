"""Composition root: settings, wiring, commands. May import every package; no package may import it.

`cdc.source` is the exception: it stands below and has its own, narrower rule.
"""
