"""Our names for why a stream ends or does not start, or a slot does not show what it would send again. Pure."""

from cdc.source.errors import (
    AccessRefused,
    ConnectionFault,
    NotPublished,
    ServerUnfit,
    SlotLost,
    SourceError,
    StreamEnded,
)
from cdc.source.publication import quote


def stream_refusal(ended: ConnectionFault) -> Exception:
    """Our name for the reason why a stream ended or did not start; what asking again cannot mend is a refusal."""
    match ended.facts.get("sqlstate"):
        case "55000":  # object_not_in_prerequisite_state: the slot was invalidated
            return SlotLost(ended.message)
        case "42704":  # undefined_object: the slot was there a moment ago, so it is the publication
            return NotPublished(
                ended.message,
                hint="The slot needs the publication that was there when the changes were made; after it was dropped, "
                "even if it was made again, run `shapelog recover --resnapshot`.",
            )
        case _:
            return ended


def history_refusal(failed: SourceError, role: str) -> Exception:
    """Our name for the reason why a slot does not show what it would send again."""
    if isinstance(failed, ConnectionFault | AccessRefused):
        return failed  # that says nothing of what is there
    if failed.facts.get("sqlstate") == "53400":  # configuration_limit_exceeded
        # The server keeps all that it decodes for us in a temporary file; for a stream it does not.
        return ServerUnfit(
            f"what the slot would send again cannot be compared with what we have: {failed.message}",
            hint=f"As a superuser, run ALTER ROLE {quote(role)} SET temp_file_limit = -1; then start again.",
            **failed.facts,
        )
    return stream_refusal(StreamEnded(failed.message, **failed.facts))  # as the stream itself would fail there
