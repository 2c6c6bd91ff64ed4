"""The app in a process of its own, to be killed: `python -m tests.loop_process CONNINFO FOLDER`."""

import asyncio
import sys
from pathlib import Path

from cdc.app import AppSettings, running


async def main(conninfo: str, folder: Path) -> None:
    async with running(AppSettings(conninfo, folder)) as app:
        async with app.house.turn:
            await app.house.turn.wait_for(lambda: app.house.is_streaming)
        sys.stdout.write("streaming\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
