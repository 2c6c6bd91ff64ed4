"""A first sync by the npm client as it is published, in Node: what a page in a browser would see of the server."""

import subprocess
import sys

import orjson

from tests.bench.rows import Row
from tests.npm_package import INSTALLED, MISSING, is_installed

SECONDS_MAX = 600


def npm_sync(url: str, count: int) -> list[Row]:
    """Its rate; nothing, and a line that says why, where it cannot be run."""
    if not is_installed():
        print(f"serve: left out, the first sync by the npm client: {MISSING}", file=sys.stderr)
        return []
    options = orjson.dumps({"url": url, "params": {"table": "items"}}).decode()
    done = subprocess.run(
        ["node", "sync.mjs", options], cwd=INSTALLED, capture_output=True, check=True, timeout=SECONDS_MAX
    )
    told = orjson.loads(done.stdout)
    assert told["rows"] == count, told
    return [Row("sync kept, by the npm client", count / told["seconds"], "rows/s")]
