"""Shape logs on disk: addresses, byte format, buffering, recovery, reading. Imports nothing of ours."""
