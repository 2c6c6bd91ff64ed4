"""What an operator may change of the shape protocol's server."""

from dataclasses import dataclass

from shapes.http import limits


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Times, sizes and permissions."""

    allow_delete: bool = False
    """Whether requests may end shapes."""
    cache_max_age_seconds: int = 60
    """How long caches keep answers that are neither first chunks nor live ones."""
    cache_stale_age_seconds: int = 300
    """For how long after that they may give them while they ask again."""
    long_poll_seconds: float = limits.LONG_POLL_SECONDS
    sse_seconds: float = limits.SSE_SECONDS_MAX
    sse_keepalive_seconds: float = limits.SSE_KEEPALIVE_SECONDS
    ready_seconds: float = limits.READY_SECONDS_MAX
    birth_seconds: float = limits.BIRTH_SECONDS_MAX
    initial_requests_max: int = limits.INITIAL_REQUESTS_MAX
    following_requests_max: int = limits.FOLLOWING_REQUESTS_MAX
    sent_bytes_max: int = limits.SENT_BYTES_MAX
    encoded_bytes_max: int = limits.ENCODED_BYTES_MAX
