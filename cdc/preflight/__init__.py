"""What following a database would cost, and what it needs: measured on the real one, and nothing is left behind."""
