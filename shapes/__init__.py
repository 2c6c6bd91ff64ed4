"""What subscribers ask for: definitions, routing of changes, serving.

May import `cdc.source`, `flush_tracker` and `storage`.
"""
