"""What the shape protocol's server counts: names for whoever exports them."""

from enum import StrEnum


class HttpMetric(StrEnum):
    """The names under which the numbers are exported; docs/metrics.md explains each."""

    INITIAL_REQUESTS = "shapelog_http_initial_requests"
    FOLLOWING_REQUESTS = "shapelog_http_following_requests"
    HELD_REQUESTS = "shapelog_http_held_requests"
    REFUSED_REQUESTS = "shapelog_http_refused_requests_total"
    ENCODED_PAGES = "shapelog_http_encoded_pages_total"
    KEPT_BYTES = "shapelog_http_kept_bytes"
    SENDING_BYTES = "shapelog_http_sending_bytes"
    CONNECTIONS = "shapelog_http_connections"
    CONNECTIONS_ACCEPTED = "shapelog_http_connections_accepted_total"
    CONNECTIONS_TURNED_AWAY = "shapelog_http_connections_turned_away_total"
    CONNECTIONS_CUT = "shapelog_http_connections_cut_total"
