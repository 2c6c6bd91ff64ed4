"""The bounds of the program around the loop: HTTP, status and stop. Each with its unit and reason."""

from typing import Final

HTTP_BACKLOG: Final = 2048
"""Connections that wait to be accepted: all readers come back at once after a restart."""

DESCRIPTORS_KEPT: Final = 768
"""Open files that connections leave to the rest of the program: storage's, which are bounded at 512, and some for
Postgres, sockets and threads. A crowd of readers must not keep the disk from being written."""

COLLECTOR_ALLOCATIONS: Final = (50_000, 20, 50)
"""Before the garbage collector looks at the young, the middle and all objects. Thousands of held requests are many
objects that live for long: by its own measure it would go through all of them whenever they are woken."""

HEAP_PIECE_BYTES_MAX: Final = 1024 * 1024
"""Larger pieces of memory go back to the system when they are freed: arrays of a whole backlog, some at a time. Those
of a batch are smaller, and serve again: to get them anew, page by page, would cost a fifth of a snapshot's copy."""

HEAP_FREE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Freed memory at the heap's end that is kept for what comes next: some batches."""

THREAD_TURN_SECONDS: Final = 0.0005
"""What a thread has the interpreter for while another waits for it. A turn costs some microseconds, and a Unix socket
is full after half a millisecond of small messages: a backlog of 10,000 shapes takes a sixth longer with one,
and with five a quarter longer than with one."""

HTTP_STOP_SECONDS_MAX: Final = 1
"""What answers under way get at a stop; then their connections are closed, and readers ask the next process."""

PROGRAM_STOP_SECONDS_MAX: Final = 5.0
"""From the signal to the end of the process. What is not flushed and confirmed by then is sent again."""

ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
"""The body of a request to the admin API: a where clause with its parameters, many times over."""

ADMIN_CLIENT_SECONDS_MAX: Final = 30.0
"""What a command waits for an answer: a status may open logs, and ask a server that is busy."""

BIRTH_PROGRESS_SECONDS: Final = 0.2
"""Between two lines about a birth: a person does not see more."""

TAIL_WAIT_SECONDS_MAX: Final = 20.0
"""What a request for rows is held for when there are none: below the minute after which proxies give up."""

TAIL_READ_BYTES: Final = 1024 * 1024
"""Asked for at a time by a tail: so much is in memory, and a terminal is slower."""

TAIL_LOOK_SECONDS: Final = 0.2
"""Between two looks of a tail at a folder, whose files tell nobody that they grew."""

STATUS_LOGS_MAX: Final = 1000
"""Logs of which a status tells rows and positions: the others would be opened for it, at a cost of memory and reads."""

SLOT_LOOK_SECONDS: Final = 5.0
"""Between two looks at the slot and the server's WAL, for the metrics and the rate."""

SLOT_ASK_SECONDS_MAX: Final = 3.0
"""What a status waits for the server: one that does not answer is told of as such."""

WAL_RATE_SECONDS: Final = 300.0
"""The rate at which WAL is written is that of the last five minutes: old enough not to jump, young enough to warn."""

EVENTS_BYTES_MAX: Final = 1024 * 1024
"""Events that are kept for the console: hundreds, enough to see what came before a fault."""

EVENT_CHARACTERS_MAX: Final = 2000
"""Of the text of a kept event, and of its hint; the program's log has all of it."""

EVENTS_SHOWN_MAX: Final = 500
"""Events in one answer: a page that has more is not read."""

LAKE_VERSIONS_SHOWN_MAX: Final = 50
"""Versions of the lake in one answer, the newest ones; `shapelog lake versions` has all."""

CHANGE_LOOK_SECONDS: Final = 5.0
"""Between two looks at how many rows each log got: thousands of logs are counted in a millisecond or two."""

CHANGE_RATE_SECONDS: Final = 30.0
"""A shape's rate of changes is that of the last half minute: long enough not to jump, short enough to be of now."""

SAMPLE_SECONDS: Final = 2.0
"""Between two points of the console's curves: as often as it asks."""

SAMPLES_KEPT: Final = 900
"""Points of each curve, half an hour of them, some 300 bytes each: longer is the business of a metrics server."""

DOCTOR_KEPT_SECONDS: Final = 5.0
"""For so long the doctor's findings are told again: each examination asks the server a dozen things for a second."""

DOCTOR_SECONDS_MAX: Final = 20.0
"""What an examination may take for a console: below the patience of its user."""

SETTINGS_FILE_BYTES_MAX: Final = 1024 * 1024
"""Of a settings file: a few lines; a larger one was named by mistake."""

WAL_ALERT_PERCENT: Final = 50.0
"""Of the WAL budget: half of the time is left in which a person can act."""

WAL_PAUSE_PERCENT: Final = 75.0
"""Of the WAL budget: from here on no snapshot begins, so that the disk and the server are there for the stream."""

WAL_END_PERCENT: Final = 90.0
"""Of the WAL budget: a shape that holds it ends, before the server takes the slot and with it all shapes."""

WAL_CALM_PERCENT: Final = 10.0
"""A step is left so far below its threshold: a slot that hovers there tells and pauses nothing again and again."""

WAL_HOLD_SECONDS: Final = 10.0
"""For so long a shape must have held the slot before it ends for it: a flush on a slow disk takes a second or two."""

WAL_SETTLE_SECONDS: Final = 20.0
"""Between a step and the next end of a shape: an end, its confirmation and two looks at the slot take no longer."""

WAL_UNSEEN_SECONDS: Final = 1.5 * SLOT_LOOK_SECONDS
"""Looks that are further apart know nothing of the time between: the process was stopped, and flushed nothing. It is
less than what a shape must have held the slot, so that no stop alone makes a shape look guilty."""

PROGRAM_MEMORY_BYTES: Final = 128 * 1024 * 1024
"""What the program takes before it has a row, with its libraries: a preflight adds to it what rows will take."""

PREFLIGHT_SECONDS_MAX: Final = 3600.0
"""For so long a preflight watches at most: its publication and slot are guests on the server."""

PREFLIGHT_TABLES_MAX: Final = 500
"""Tables that a preflight looks at when none is named, the most written first: each is asked about by itself."""

SLOT_CALM_BYTES: Final = 64 * 1024 * 1024
"""Of WAL, four of the server's files: a slot that keeps less is as every slot, and nobody is named for it."""
