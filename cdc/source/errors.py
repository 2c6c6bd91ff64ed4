"""What can go wrong at the Postgres end: a class for each condition, with a code, the facts, and a hint for a person.

Three families decide what happens next, and nothing else needs to look closer:

- `ConnectionFault`: the server or the way to it failed. The session connects again, later and later, and loses nothing.
- `Refusal`: going on would lose or double changes, or cannot work. Nobody tries again before a person has acted.
- `ProtocolError`: the server said what no server says. The connection is closed; what it brought is not trusted.
"""

from cdc.source.coded_error import CodedError


class SourceError(CodedError):
    """The root of the source's errors."""

    code = "source"


class ConnectionFault(SourceError):
    """The connection is gone, or could not be made; another attempt may do."""

    code = "connection_fault"
    hint = "The session connects again by itself; if this goes on, look at the server's log."


class ProtocolError(SourceError):
    """The server's bytes make no sense: damage on the way, or a protocol that this version does not know."""

    code = "protocol_error"
    hint = "Check the server's version against the supported ones, and report the message if it is one of them."


class Refusal(SourceError):
    """Something only a person can decide or mend."""

    code = "refused"
    hint = "Mend what the message names, then start again."


class SlotBusy(ConnectionFault):
    """Another connection streams from the slot."""

    code = "slot_busy"
    hint = "Stop the other reader, or wait until the server has noticed that it is gone; the session tries again."


class Unreachable(Refusal):
    """The server could not be reached for as long as we were told to try."""

    code = "unreachable"
    hint = "Check that the server runs, and the host, port and password of the connection string."


class ServerStopping(ConnectionFault):
    """The server shuts down, and lets nobody in."""

    code = "server_stopping"
    hint = "Nothing is lost: the session connects again when the server is back."


class StandbyServer(ConnectionFault):
    """The server is a standby, perhaps one that is about to be promoted: its slots say nothing yet."""

    code = "standby"
    hint = "Connect to the primary, or name all servers and add target_session_attrs=read-write."


class TwoServers(ConnectionFault):
    """The connection string names several servers, and our two connections met different ones."""

    code = "two_servers"
    hint = "Add target_session_attrs=read-write to the connection string, or name one server."


class OwnedElsewhere(Refusal):
    """Another process of ours has this slot."""

    code = "owned_elsewhere"
    hint = "Stop the process that is named, or choose another slot; two readers of one slot would each miss changes."


class AccessRefused(Refusal):
    """The server knows us and says no: a right, a password, a database."""

    code = "access_refused"
    hint = "`shapelog doctor` lists the rights that are missing, with the statements that grant them."


class ServerUnfit(Refusal):
    """A setting of the server makes logical replication impossible."""

    code = "server_unfit"
    hint = "`shapelog doctor` names the setting and the statement that changes it."


class SlotExists(Refusal):
    """There is a slot of this name, and nothing of ours says that we made it."""

    code = "slot_exists"
    hint = "Choose another slot name, adopt the slot, or drop it if nobody reads it any more."


class SlotLost(Refusal):
    """The slot is gone or useless: what it should have kept for us is not there any more."""

    code = "slot_lost"
    hint = "Run `shapelog recover --resnapshot`: a new slot is made, and all shapes get a new snapshot."


class SlotAhead(Refusal):
    """The slot was confirmed beyond what we have: the changes between will never be sent again."""

    code = "slot_ahead"
    hint = "Run `shapelog recover --resnapshot`, and find out who else reads or advances this slot."


class OtherServer(Refusal):
    """Another server than the one that our data came from, or the same one set back to an earlier state."""

    code = "other_server"
    hint = "Point to the right server; or, if this one replaces it, run `shapelog recover --resnapshot`."


class SlotCreationBlocked(Refusal):
    """A slot begins where no transaction is open, and one stays open."""

    code = "slot_creation_blocked"
    hint = "End the transactions that are named, then start again; no slot was left behind."


class TableBusy(Refusal):
    """The lock that a table's change needs was not to be had."""

    code = "table_busy"
    hint = "Try again when the transactions that are named have ended."


class NotPublished(Refusal):
    """The publication lacks something, and we are not to change it."""

    code = "not_published"
    hint = "Run the statements that are shown, as the owner of the tables, then start again."


class CannotPublish(Refusal):
    """A table that cannot be followed at all, whoever runs which statement."""

    code = "cannot_publish"
    hint = "Choose another table: only ordinary and partitioned tables write logical changes."


class StreamEnded(ConnectionFault):
    """The stream stopped: the server ended it or shut down, or the connection broke."""

    code = "stream_ended"

    @property
    def sqlstate(self) -> str | None:
        """The server's reason, if it gave one."""
        found: str | None = self.facts.get("sqlstate")
        return found


class StreamStuck(ConnectionFault):
    """The server fails at the same place of its WAL whenever it is asked to go on there. It is asked all the same."""

    code = "stream_stuck"
    hint = (
        "Most often it is a row of more than 1 GB as text, which Postgres can store and cannot send: make it smaller, "
        "or remove the shapes of its table. Then stop, run `shapelog recover --resnapshot --new-stream`, which goes on "
        "behind it with new snapshots, and start again."
    )


class StreamRefused(StreamEnded):
    """The server did not start the stream; its SQLSTATE says whether asking again can help."""

    code = "stream_refused"
    hint = "Look at the slot in pg_replication_slots; the server's message names what is missing."


class MessageTooLarge(Refusal):
    """One message of the stream, a row with all its values, is larger than what we take into memory."""

    code = "message_too_large"
    hint = "Raise the limit, or take the table out of the publication; the slot cannot pass this row otherwise."


class NotText(Refusal):
    """A value is not valid UTF-8."""

    code = "not_utf8"
    hint = "A database with server_encoding SQL_ASCII holds bytes of any encoding: dump it and restore it into UTF8."
