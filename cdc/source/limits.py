"""Every bound of the source: its name says the unit, the sentence below it says why this much."""

from typing import Final

CONNECT_SECONDS_MAX: Final = 10
"""For one attempt to reach the server, unless the connection string says otherwise: the kernel alone waits minutes."""

RECONNECT_SECONDS_MAX: Final = 15.0
"""Between two attempts at most, with jitter: a server that is back finds us soon, and not all clients at once."""

STATUS_SECONDS_MAX: Final = 10.0
"""Between two status replies at most, also where `wal_sender_timeout` is 0: the slot's progress is seen in time."""

STATUS_SHARE_OF_TIMEOUT: Final = 3
"""Status replies go out this many times in a `wal_sender_timeout`: two may be late before the server gives us up."""

REPLY_SECONDS_MIN: Final = 0.1
"""Between two status replies at least: a server that shuts down asks again after each reply, without a pause."""

FLOOD_REQUESTS: Final = 4
"""So many requests for a reply at one place of the WAL within `FLOOD_SECONDS`: the server waits for us to end."""

FLOOD_SECONDS: Final = 1.0
"""A healthy server asks once in half of `wal_sender_timeout`, which is far longer."""

SHUTDOWN_SECONDS_MAX: Final = 5.0
"""What a server's shutdown waits for our flush; then the connection is closed, and the rest is sent again later."""

GOODBYE_SECONDS_MAX: Final = 2.0
"""What a clean end waits for the server to take the last confirmation; without it the next start replays a little."""

SILENCE_SECONDS_MAX: Final = 30.0
"""A server that says nothing for so long, although it was asked, is gone: the network has not told us yet."""

SILENT_WORK_SECONDS_MAX: Final = 3600.0
"""A walsender that says nothing but is seen at work is waited for: to skip a transaction of many gigabytes takes
minutes, and a new connection would begin it again. After an hour it counts as a process that stands still."""

WATCH_SECONDS: Final = 1.0
"""Between two looks at the server over the second connection, whose loss is also the first sign of a shutdown, and
which show a publication that was altered."""

PUBLICATION_CHECK_SECONDS: Final = 60.0
"""Between two comparisons of the publication with what it was, where nothing shows sooner that it was altered: what
partitions and schemas it has is read only then, since that takes a look at each of them."""

LOCK_TIMEOUT_SECONDS: Final = 1.0
"""For DDL of ours: whoever wants the table queues behind our request, so it may not wait for long."""

LOCK_SHARED_SECONDS: Final = 3.0
"""The same for a lock that keeps nobody from reading and writing. It must be above `deadlock_timeout`, a second as
Postgres comes: only after that an autovacuum makes way."""

LOCK_RETRY_SECONDS_MIN: Final = 0.5
"""The first pause between two requests for a table's lock, in which the table's users pass."""

LOCK_RETRY_SECONDS_MAX: Final = 10.0
"""The longest such pause."""

LOCK_RETRIES_SECONDS_MAX: Final = 300.0
"""After so long the table counts as busy, and its holder is named in the error."""

WRITERS_SECONDS_MAX: Final = 3600.0
"""What publishing a table waits for the transactions that wrote to it before."""

SLOT_CREATION_SECONDS_MAX: Final = 3600.0
"""What the creation of a slot waits for the transactions that run: longer ones are somebody's mistake."""

STANDSTILL_FAILURES: Final = 5
"""Of the stream at one place, with one error of the server's, until that is taken for what connecting again does not
mend: enough that no passing trouble is, and with the pauses between them less than a minute."""

HISTORY_SECONDS_MAX: Final = 3600.0
"""What a new connection waits for the server to decode once more what it has forgotten that we confirmed: after a crash
of the server that is WAL since the last checkpoint or two. After so long the connection counts as lost."""

POLL_SECONDS: Final = 0.25
"""Between two looks at what is waited for in the server: soon enough for a person, rare enough for the server."""

FREE_POLL_SECONDS: Final = 0.025
"""Between two looks whether a lost connection of ours has let go of the slot, once it was ended: it takes the server
milliseconds, and all readers wait."""

OWNERSHIP_SECONDS_MAX: Final = 60.0
"""What a start waits for another process to let go of the slot; above what a server needs to miss a dead client."""

PUBLICATION_GRACE_SECONDS: Final = 3600.0
"""A table that nobody follows stays published for this long: to publish it again waits for its writers again."""

HEARTBEAT_SECONDS: Final = 30.0
"""Between two heartbeats: each is a commit of some 100 bytes, and lets the slot pass WAL of other databases."""

BATCH_BYTES: Final = 1024 * 1024
"""One batch off the socket: enough messages for decoding by columns to pay, little enough to stay in the cache."""

BATCH_SECONDS: Final = 0.025
"""A batch is not gathered for longer, however slowly its bytes come: about what the fastest walsender needs for it."""

READER_NICENESS: Final = -15
"""Of the thread that empties the socket, where the system lets us choose: it wants the processor for a twentieth of a
millisecond at a time, and while it waits for that, a walsender on the same machine stands still."""

FRAMED_BYTES_MIN: Final = 128 * 1024
"""What has come is looked at for whole messages when it is this much, or when a batch is handed over: it takes some
tenths of a millisecond, half of what a walsender needs to fill its socket; less at a time would cost more in all."""

BACKLOG_NAP_SECONDS: Final = 0.0001
"""While a backlog drains, the pause before reading on: a reader that sleeps in the kernel is woken for each message,
and the walsender pays for that. Far longer, and the socket's buffer runs full."""

BACKLOG_BYTES_MIN: Final = 64 * 1024
"""A batch of this much shows a backlog: no live stream gathers it between two reads."""

BACKLOG_READ_BYTES_MIN: Final = 1024
"""A read of less is as good as nothing: a walsender at work sends several times this in a pause."""

BACKLOG_QUIET_SECONDS: Final = 0.002
"""In a backlog, what is gathered waits so long for a walsender that the processor was taken from."""

BACKLOG_OVER_SECONDS: Final = 0.010
"""After this long without a byte the backlog is drained, and latency counts again."""

LIBPQ_PIECE_BYTES: Final = 8 * 1024
"""libpq reads 16 KiB at a time: after a read of more than half of it, the socket may hold the rest of a pause."""

READY_BATCHES_MAX: Final = 8
"""Batches that wait to be taken: the walsender works on while a fragment of thousands of shapes is dealt with, which
takes as long as these batches do; they are then taken together."""

MESSAGE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The largest message that Postgres can build itself."""

SEND_PENDING_BYTES_MAX: Final = 64 * 1024
"""Status replies that the server did not read yet: with more of them waiting, it reads nothing at all."""

FRAGMENT_CHANGES_MAX: Final = 16_384
"""Changes of one fragment: more would not make columns cheaper, and what is behind us works in smaller steps."""

FRAGMENT_BYTES_MAX: Final = 2 * BATCH_BYTES
"""Wire bytes of one fragment, unless a single change is larger."""

LONG_TRANSACTION_SECONDS: Final = 300.0
"""A transaction open for longer deserves a word: it keeps WAL, the catalog's dead rows, and a new slot waiting."""

WAL_ROOM_HOURS_MIN: Final = 4.0
"""The outage that a slot should survive: less room than WAL written in so long, and a night's failure loses it."""

CLOCK_SKEW_SECONDS_MAX: Final = 5.0
"""Between the server's clock and ours, beyond which ages and lags that are shown mislead."""

WAL_SAMPLE_SECONDS: Final = 1.0
"""How long the WAL rate is measured: a person waits for it."""

WAL_AVERAGE_SECONDS_MIN: Final = 3600.0
"""The average WAL rate is taken over at least so long: of a server that just started, its start is not the rule."""

SLOT_UNREAD_BYTES: Final = 256 * 1024 * 1024
"""WAL kept by a slot that nobody reads: less is a server that was restarted, more is one that was forgotten."""
