"""The demo: a writer that is killed again and again, readers that follow it, and a proof that nothing was lost."""
