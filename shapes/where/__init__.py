"""Where clauses: read, typed, written canonically, and asked of whole columns.

Start at `clause`. Pure: nothing here reads a clock, a disk or a socket.
"""
