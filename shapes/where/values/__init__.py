"""Values of Postgres' types in Python: read from text, written as text, compared and calculated with, exactly."""
