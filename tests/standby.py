"""A standby of a test's own server: a copy that follows, and takes the failover slots over where the version can."""

import shutil
import tempfile
from pathlib import Path

from tests.postgres import Server, free_port, server_user

SLOT = "the_standby"
"""Of the standby itself: failover slots wait for it."""


def standby_of(primary: Server, *, started: bool = True) -> Server:
    """A standby, whose host and port are known before it is started; the caller removes it."""
    root = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # socket paths end at 107 bytes
    root.chmod(0o755)
    folder = root / "standby"
    standby = Server(primary.version, folder, host=str(folder), port=free_port())
    standby.folder.mkdir()
    if user := server_user():
        shutil.chown(standby.folder, user)
    data = standby.folder / "data"
    standby.run(
        primary.programs / "pg_basebackup",
        *("-D", data, "-d", primary.conninfo(), "--checkpoint=fast", "-C", "-S", SLOT),
    )
    (data / "standby.signal").touch()
    source = primary.conninfo().replace("'", "''")
    settings = {"primary_conninfo": source, "primary_slot_name": SLOT, "hot_standby_feedback": "on"}
    if int(primary.version) >= 17:
        settings |= {"sync_replication_slots": "on"}
    standby.configure(**settings)
    if started:
        standby.start()
    return standby
