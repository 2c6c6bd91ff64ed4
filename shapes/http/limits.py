"""Every bound of the shape protocol's server: its name says the unit, the sentence below it says why this much.

Some are defaults of what an operator may change: see `settings.HttpSettings`.
"""

from typing import Final

LONG_POLL_SECONDS: Final = 20.0
"""A live request without news is answered after so long: clients give up after 45 s, proxies after 60."""

SSE_SECONDS_MAX: Final = 60.0
"""A stream of events ends after so long, so that caches may share one; clients open the next at once."""

SSE_KEEPALIVE_SECONDS: Final = 21.0
"""Between two comments on a silent stream: below the half minute after which some proxies close one."""

READY_SECONDS_MAX: Final = 5.0
"""A request waits so long for the server to have a stream; then it is told to come again."""

READY_RETRY_SECONDS: Final = 5
"""When it shall come again: a slot is not freed, or a server started, much faster."""

TABLE_SECONDS_MAX: Final = 10.0
"""What a look at the server's catalog may take: two round trips, unless the server is out of reach."""

TABLE_FACTS_SECONDS: Final = 1.0
"""Facts of a table that were read so lately are not read again: a page with twenty shapes asks at once."""

BIRTH_SECONDS_MAX: Final = 30.0
"""A request waits so long for a shape to be born; the birth goes on, and who asks again waits for the same one."""

CHUNK_SECONDS_MAX: Final = 20.0
"""A request waits so long for a chunk that is still being copied: below what proxies allow for an answer."""

STATE_LOOK_SECONDS: Final = 0.02
"""Between two looks at what changes without telling anybody: a copy's progress, the stream passing a birth. Few wait
for these, and for seconds only."""

ENDED_LOOK_SECONDS: Final = 0.25
"""Between two looks for handles that ended while requests are held: one task looks for all of them."""

DEFINITIONS_KEPT: Final = 10_000
"""Requests whose definitions are remembered: as many as shapes may live. A few kilobytes each at most."""

DEFINITION_BYTES_KEPT_MAX: Final = 8 * 1024
"""A request with more text than this in its definition is read anew each time, which bounds what is remembered."""

URL_BYTES_MAX: Final = 60 * 1024
"""Path and query: far more than common proxies let through, and less than clients refuse to send."""

HEAD_BYTES_MAX: Final = 128 * 1024
"""A request's first line and headers: twice the longest address, so that one that is too long is told so."""

HEADERS_MAX: Final = 256
"""Headers of a request, each an object of ours however short it is: browsers and proxies send some thirty."""

HEAD_SECONDS_MAX: Final = 10.0
"""For a head to arrive, once it has begun: whoever takes longer wants to hold connections, not to ask."""

IDLE_SECONDS_MAX: Final = 75.0
"""A connection without a request is closed after so long: later than common proxies close theirs, which would otherwise
send a request into a connection that is just being closed."""

LINGER_SECONDS_MAX: Final = 2.0
"""For a client to hear why it was refused while it goes on sending: after a close at once the system may forget what
was sent."""

PIPELINED_MAX: Final = 32
"""Requests that came behind one that is not answered; no client of ours sends any. More of them end the connection."""

CONNECTIONS_MAX: Final = 20_000
"""Connections at a time: twice as many as requests, since some of them ask nothing at the moment."""

UPLOAD_SECONDS_MAX: Final = 30.0
"""For a body to arrive, whoever reads it."""

BODY_AHEAD_BYTES: Final = 64 * 1024
"""Of a body that nobody has asked for yet, and of requests behind one that is not answered: then reading stops."""

CONNECTIONS_LOOK_SECONDS: Final = 1.0
"""Between two looks at all connections: one timer for all of their time limits."""

CONNECTIONS_SLICE: Final = 256
"""Connections that are looked at, or answered, in one go, before others have their turn: a few milliseconds."""

QUESTIONS_KEPT: Final = 8
"""Spellings of a request that are known again, for each place at which somebody is held: most readers use the same."""

QUERIES_KEPT: Final = 1_024
"""Queries that are remembered as they were understood: readers of a shape send the same ones."""

QUERY_BYTES_KEPT: Final = 2 * 1024
"""A query of more is read each time, which bounds what is remembered to a few megabytes."""

PARAMETERS_MAX: Final = 1_100
"""Parameters of a request: a thousand for a where clause, and the others."""

BODY_BYTES_MAX: Final = 256 * 1024
"""Of a POST: a where clause with its parameters, several times over."""

BODY_SECONDS_MAX: Final = 10.0
"""For such a body to arrive."""

INITIAL_REQUESTS_MAX: Final = 300
"""First requests of a shape at a time: each may read a table's facts, make a shape, and encode its first chunk."""

FOLLOWING_REQUESTS_MAX: Final = 10_000
"""All others at a time, held ones included: 5 to 15 kB each."""

OVERLOAD_RETRY_SECONDS_MIN: Final = 6
"""Who is turned away comes again after this ..."""

OVERLOAD_RETRY_SECONDS_MAX: Final = 10
"""... to this much, by chance, so that not all come at once."""

SENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bodies of answers under way, a shared one counted for each: beyond, new answers with rows are refused for a while."""

SEND_PIECE_BYTES: Final = 128 * 1024
"""A body is handed to a connection in such pieces, each when the one before is gone: what a slow reader holds."""

SOCKET_AHEAD_BYTES: Final = 64 * 1024
"""What the system takes for a reader before he can: without a bound it takes megabytes, holds them for each slow
reader, and for minutes nobody sees that he takes some. A fast reader has as much under way as his own buffer allows."""

SEND_SECONDS_MAX: Final = 30.0
"""A reader who takes nothing of what was sent for so long is cut off: the connection holds a piece of an answer."""

SEND_WINDOW_SECONDS: Final = 30.0
"""Over so long it is measured how fast a reader takes what waits for him: a phone may be silent for some seconds."""

SEND_BYTES_A_SECOND_MIN: Final = 4 * 1024
"""Whoever takes less, and not all that waited for him either, is cut off: who takes a byte now and then would hold a
piece of an answer, and its share of SENT_BYTES_MAX, for ever. The slowest networks of phones bring twice as much, and
in a window this is just a piece: SEND_PIECE_BYTES."""

ENCODED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Encoded rows that are kept: a page of many readers is encoded once, and so is a chunk that comes back."""

ENCODERS: Final = 2
"""Threads that read and encode: Arrow works outside the interpreter's lock, and the event loop goes on."""

ROWS_BY_HAND_MAX: Final = 48
"""Up to so many rows are encoded one by one: below, calling columns' functions costs more than it saves."""

SUBSET_ROWS_MAX: Final = 100_000
"""Rows of one subset: it is a page of a table, in memory at once; a larger part is a shape of its own."""

SUBSET_BYTES_MAX: Final = 64 * 1024 * 1024
"""Values of one subset, for the same reason."""

SUBSET_SECONDS_MAX: Final = 30.0
"""What the query of a subset may take on the server: who asks for rows by request may not keep it busy for long."""

SUBSETS_AT_ONCE: Final = 8
"""Queries of subsets at a time: each has a connection to the server."""

TOKEN_BYTES_MAX: Final = 8 * 1024
"""A signed token, with a where clause in it; headers of more are refused by most servers."""

TOKENS_KEPT: Final = 10_000
"""Valid tokens whose claims are remembered, as many as requests may be held: to verify a signature takes 20 to 150 us
of a processor, and who follows a shape brings the same token with every request."""

TOKEN_BYTES_KEPT: Final = 2 * 1024
"""A token of more is verified each time, which bounds what is remembered to some megabytes."""

TOKEN_LEEWAY_SECONDS: Final = 10.0
"""By how much clocks may differ from those of whoever signs tokens."""
