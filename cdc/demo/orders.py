"""What a process of the demo is told on its standard input; when that ends, so does the process."""

import os
import sys
import threading


class Orders:
    """Listens in a thread, so that work is never waited for."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.last: int | None = None
        """The last transaction there will be, once it is known."""
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            _, _, number = line.partition(" ")
            self.last = int(number) if number.strip() else None
            self.stop.set()
        os._exit(0)  # who started us is gone, whatever the reason: nobody is left to work for
