"""The demo: a shop on its own Postgres, a server that is killed again and again, a proof that nothing is lost."""
