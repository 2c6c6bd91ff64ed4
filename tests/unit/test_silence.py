"""Which waits of a silent walsender mean that it is at work."""

import pytest

from cdc.source.silence import work_of


@pytest.mark.parametrize(
    ("kind", "event", "work"),
    [
        (None, None, "it computes"),
        ("IO", "WALRead", "it waits for WALRead (IO)"),
        ("Lock", "relation", "it waits for relation (Lock)"),
        ("Client", "WalSenderWriteData", None),  # we do not take what it sends, or do not get it
        ("Client", "WalSenderWaitForWAL", None),
        ("Activity", "WalSenderMain", None),
    ],
)
def test_a_walsender_works_unless_it_waits_for_us_or_for_work(
    kind: str | None, event: str | None, work: str | None
) -> None:
    assert work_of(kind, event) == work
