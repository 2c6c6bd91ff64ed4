"""The bounds of the program around the loop: HTTP, status and stop. Each with its unit and reason."""

from typing import Final

HTTP_BACKLOG: Final = 2048
"""Connections that wait to be accepted: all readers come back at once after a restart."""

COLLECTOR_ALLOCATIONS: Final = (50_000, 20, 50)
"""Before the garbage collector looks at the young, the middle and all objects. Thousands of held requests are many
objects that live for long: by its own measure it would go through all of them whenever they are woken."""

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

SAMPLE_SECONDS: Final = 2.0
"""Between two points of the console's curves: as often as it asks."""

SAMPLES_KEPT: Final = 900
"""Points of each curve, half an hour of them, some 300 bytes each: longer is the business of a metrics server."""

DOCTOR_KEPT_SECONDS: Final = 5.0
"""For so long the doctor's findings are told again: each examination asks the server a dozen things for a second."""

DOCTOR_SECONDS_MAX: Final = 20.0
"""What an examination may take for a console: below the patience of its user."""
