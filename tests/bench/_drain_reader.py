"""One drain of a slot by us, in a process of its own so that its time and memory are its own. Prints a JSON line."""

import argparse
import asyncio
import json
import sys
import time

import psycopg

from cdc.source.copy_both import Framing, start_stream
from cdc.source.fragments import Fragment, KeepAlive
from cdc.source.lsn import format_lsn
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from tests.bench.process_memory import peak_bytes


async def drain(conninfo: str, command: str, end: int, framing: Framing) -> dict[str, float]:
    began, cpu_began = time.perf_counter(), time.process_time()
    changes = batches = transactions = 0
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, replication="database")
    stream = await start_stream(connection, command, framing)
    decoder = Decoder(Relations())
    at = 0
    while at < end:
        batches += 1
        for event in decoder.feed(await stream.batch()):
            if isinstance(event, Fragment):
                changes += event.changes_count
                transactions += event.ended_count
                if event.ended_count:
                    at = int(event.transactions.end_lsn[event.ended_count - 1])
            elif isinstance(event, KeepAlive):
                at = max(at, event.wal_end)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    stream.close()
    await connection.close()
    return {
        "seconds": seconds,
        "cpu": cpu,
        "peak": peak_bytes(),
        "changes": changes,
        "transactions": transactions,
        "batches": batches,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("conninfo")
    parser.add_argument("command")
    parser.add_argument("end", type=int)
    parser.add_argument("framing", choices=["LIBPQ", "PLAIN"])
    arguments = parser.parse_args()
    found = asyncio.run(drain(arguments.conninfo, arguments.command, arguments.end, Framing[arguments.framing]))
    json.dump(found | {"end": format_lsn(arguments.end)}, sys.stdout)


if __name__ == "__main__":
    main()
