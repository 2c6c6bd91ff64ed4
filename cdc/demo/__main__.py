"""A process of the demo, as the demo starts it: `python -m cdc.demo writer FOLDER` or `.. reader FOLDER [BYTES]`."""

import sys
from pathlib import Path

from cdc.demo.check import Mismatch
from cdc.demo.messages import Failed, tell
from cdc.demo.reader import read
from cdc.demo.writer import write
from storage.errors import StorageError


def main(role: str, folder: str, *numbers: str) -> int:
    """Be a process of the demo; what ends it early is told, and not thrown at people."""
    try:
        if role == "writer":
            write(Path(folder))
        else:
            read(Path(folder), *map(int, numbers))
    except StorageError as error:
        tell(Failed(error.code, str(error)))
        return 1
    except OSError as error:
        tell(Failed("os_error", f"{folder}: {error.strerror or error}"))
        return 1
    except Mismatch as error:
        tell(Failed("mismatch", str(error)))
        return 1
    return 0


sys.exit(main(*sys.argv[1:]))
