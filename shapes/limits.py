"""Every bound of the shapes: its name says the unit, the sentence below it says why this much."""

from typing import Final

IDENTIFIER_CHARACTERS_MAX: Final = 63
"""NAMEDATALEN - 1 of any ordinary server; in characters, so that a name in any script meets the same error."""

SHAPE_NAME_BYTES_MAX: Final = 127
"""A schema, a point and a table, each as long as Postgres allows; file systems end at 255, and suffixes are added."""

SHAPES_MAX: Final = 10_000
"""Shapes that live at a time, unless `--max-shapes` says otherwise: what routing and recovery were measured with."""

SHAPE_IDLE_SECONDS: Final = 24 * 3600.0
"""A shape without a name that nobody asked for in so long ends: a reader that sleeps over night comes back to it."""

ACKNOWLEDGE_SECONDS: Final = 0.1
"""Between two confirmations of G: a storm of flushes is one sync of the G log, and the server still hears at once."""

ACKNOWLEDGE_LOOK_SECONDS: Final = 1.0
"""Whoever lets G grow and tells nobody, as the end of a shape does, is noticed after so long; a look costs nothing."""

QUIET_SECONDS: Final = 0.005
"""A stream of which nothing has come for so long is quiet: rows then wait for no others to be flushed with. A server
that has more to send does so sooner, and a flush too many is no harm: they come no more often for it."""

GATHER_SHAPES_MIN: Final = 250
"""A fragment that touches so many shapes costs more for them than for its rows; the next ones are taken together."""

GATHER_CHANGES_MIN: Final = 500
"""The same of a fragment that has so many changes: what is done once for each table of it costs as much as some hundred
rows do. Fewer changes are no backlog, and nobody waits for more of them: they come within 50 ms at 10,000 a second."""

GATHER_GAP_SECONDS: Final = 0.01
"""What a fragment of a backlog waits for a server that is silent: one that has more to send is so for moments only. A
transaction of a thousand rows that is followed by none comes so much later."""

GATHER_SECONDS_MAX: Final = 0.1
"""What the first of them waits for the last as long as they come: some 30,000 changes at a walsender's pace, of five
tables. In pieces of 4,000 they cost twice as much from their decoding to the disk, in pieces of 15,000 a tenth more."""

GATHERED_CHANGES_MAX: Final = 65_536
"""Changes that are taken at once: 10,000 shapes get six each, and a change costs a fifth less than in half as many.
The loop stands still for no longer than with one fragment of 8,000, some tenths of a second. Some 10 MB of narrow rows,
twice while they are joined; one fragment may come on top."""

GATHERED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same of wide rows, in memory: to take more of them together would save little, since they themselves cost more
than what is done for a shape."""

GATHER_LIKE_BEFORE_SECONDS_MAX: Final = 1.0
"""Where thousands of shapes were touched, the first of them waits for the last for as long as the fragment before took,
some tenths of a second, but never for longer than this: who follows a shape would notice."""

ROOM_SECONDS: Final = 1.0
"""Between two looks whether the buffer has room: the wait is woken by the flush that makes some, this is for faults."""

STOP_SECONDS_MAX: Final = 5.0
"""What a stop takes for the last flush and confirmation; after it the process ends, and the slot sends the rest."""

STALL_SECONDS_MAX: Final = 60.0
"""A shape with rows that could be flushed, and none was for so long while the disk served others, ends: it would keep
WAL on the server for ever. Flushes take a tenth of a second, and the slowest disk some seconds."""

SHAPE_LOG_BYTES_MAX: Final = 16 * 1024**3
"""Of a shape's segments, without its bases, where they cannot be folded. A shape above it ends; one with a name begins
anew with a snapshot: whoever follows it from its start would read more history than the table has rows."""

LOGS_REMOVED_AT_ONCE: Final = 16
"""Of so many shapes that end together, the files go at once: some milliseconds each, for which the stream waits. Those
of more are left to housekeeping."""

LOGS_SWEPT_AT_ONCE: Final = 500
"""Logs that housekeeping removes in one round, in about two seconds: its other work goes on."""

ASK_SECONDS_MAX: Final = 60.0
"""What a few questions to the server's catalog may take, all together: 10,000 tables take some seconds. A server that
does not answer must hold neither housekeeping nor a request for ever."""

LOG_BYTES: Final = 1024**3
"""Of a shape's segments, unless `--log-bytes` says otherwise: above it, the older half is folded into a new base. Who
comes later needs none of it, and who is further behind than half of it begins anew."""

FOLD_LOOK_SECONDS: Final = 10.0
"""Between two looks for logs above their bound; the fastest stream writes some hundred MB meanwhile."""

FOLD_RETRY_SHARE: Final = 0.25
"""A log that could not be made smaller is tried again when it has grown by this share of its bound: a try reads it."""

FOLD_AGE_LOOKS: Final = 10
"""So often within the age that a log's rows may have, it is looked whether some are older."""

HOUSEKEEPING_SECONDS: Final = 5.0
"""Between two looks for idle shapes, tables that nobody follows, and files of shapes that ended."""

STREAMED_XIDS_MAX: Final = 4 * 1024 * 1024
"""Transactions that were streamed and not yet seen by a look at the server: 16 MiB, half a minute of the fastest
stream. Beyond, a bound takes their place, and a birth waits for ordinary writers, too."""

BRANCH_KEYS_MAX: Final = 1_000
"""Combinations of values by which one branch of a clause stands in the index: `a IN (..) AND b IN (..)` multiplies.
Beyond, the columns with the most values are asked of the rows found instead. A single column may have any number."""

CLAUSE_BRANCHES_MAX: Final = 64
"""Sides of an OR that are looked up one by one; with more of them, asking every row costs as much."""

BAND_CONDITIONS_MIN: Final = 4
"""With fewer conditions that differ in their constants alone, asking each is cheaper than sorting the rows for them."""

BAND_PAIRS_MAX: Final = 1024 * 1024
"""Rows times conditions that are compared at once: 1 MiB of answers, and 16 MiB of numbers where all are true."""

SHARED_VERDICTS_BYTES_MAX: Final = 32 * 1024 * 1024
"""What conditions said of a batch, kept for other clauses that have them too: 2,000 conditions on a full fragment."""

JOINED_SECONDS_MAX: Final = 30.0
"""A shape that has joined the stream and is not born yet holds G; after so long it leaves, waits, and joins again."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows of such a shape are held in memory, for nobody knows yet which of them its snapshot has. Beyond, as above."""

LOOK_AGAIN_SECONDS: Final = 0.05
"""Between two snapshots while one that will do is looked for: about what a near standby takes to confirm a commit."""

LOOK_OUTSIDE_SECONDS: Final = 1.0
"""The same after the shape has left the stream: what is waited for then takes long, and holds up nothing."""

UNSEEN_SECONDS_MAX: Final = 3600.0
"""All that a birth waits for commits that were streamed to become visible: longer is somebody's mistake."""

RETAKES_MAX: Final = 5
"""So often a snapshot that ended in mid-copy is taken again; then the shape ends, with the last reason."""

RETAKE_SECONDS_MIN: Final = 1.0
"""The first pause before that; each one is twice the one before ..."""

RETAKE_SECONDS_MAX: Final = 60.0
"""... up to this: a table that is copied in vain costs its server as much as one that is copied well."""

SUCCESSOR_SECONDS_MIN: Final = 10.0
"""The first pause before a successor that could not be born is tried again; each one is twice the one before ..."""

SUCCESSOR_SECONDS_MAX: Final = 900.0
"""... up to this: what was in the way, a right or a table, is mended by a person, who sees the shape come back soon."""

SNAPSHOT_DISK_SECONDS_MAX: Final = 60.0
"""What a copy waits for a disk that takes nothing (A9); an open snapshot keeps the server from cleaning up, so it ends
then, and is taken again when there is room."""

SNAPSHOT_PENDING_BYTES_MAX: Final = 8 * 1024 * 1024
"""Rows of a copy that wait for their chunk to be full; larger chunks are cut here. One batch may come on top."""

WHERE_BYTES_MAX: Final = 64 * 1024
"""A where clause as it is written: some thousand values in a list, more than a URL carries."""

WHERE_TEXT_BYTES_MAX: Final = 1024 * 1024
"""A where clause in its canonical text, with parameters bound; bounds what is stored and sent with each snapshot."""

WHERE_DEPTH_MAX: Final = 50
"""Parts of a where clause inside each other: each costs some of Python's stack, and nobody reads as many."""

WHERE_STORED_DEPTH_MAX: Final = 4 * WHERE_DEPTH_MAX
"""The same for a canonical text, in which conversions and shorthands are written out."""

WHERE_SCALAR_ROWS_MAX: Final = 16
"""Up to so many rows a where clause is asked row by row: below, calling kernels costs more than they save."""

WHERE_PREDICATES_KEPT: Final = 1024
"""Clauses that are kept ready to be asked: some kilobytes each; others are made ready again."""

BIRTHS_AT_ONCE: Final = 4
"""Snapshots that are copied at a time: each keeps a connection and an old snapshot on the server, and uses our disk."""

TYPE_DEPTH_MAX: Final = 16
"""Types within types (arrays of composites of ranges ..): what lies deeper is told as text."""

CLIENT_SECONDS_MAX: Final = 45.0
"""For an answer to our client to begin and to go on: twice what a server holds a request, or is silent in a stream."""

CLIENT_PAUSE_SECONDS_MIN: Final = 0.4
"""Our client's pause after one attempt that failed; each that fails after it doubles the pause."""

CLIENT_PAUSE_SECONDS_MAX: Final = 30.0
"""The longest such pause: who was away for an hour is back in half a minute."""

CLIENT_RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""What a server may ask our client to wait; a header that says a year is a mistake, and not one to die of."""

CLIENT_EVENTS_BYTES: Final = 1024 * 1024
"""Of a stream of events, handed on together at most, if `up-to-date` does not come before: bounds what is in memory."""

CLIENT_SHORT_STREAM_SECONDS: Final = 1.0
"""A stream of events that ends sooner and brought nothing was cut by something in between."""

CLIENT_SHORT_STREAMS_MAX: Final = 3
"""After so many in a row our client asks for answers instead, which get through everywhere."""
