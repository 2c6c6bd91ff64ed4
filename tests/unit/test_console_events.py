"""The events that the console shows: bounded, counted up when they repeat, with the code and hint of an error."""

import logging
import threading

from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import AddressTaken
from cdc.http.console.events import Event, Events, event_of
from cdc.http.console.recording import recording
from cdc.limits import EVENT_CHARACTERS_MAX
from storage.errors import SharedDiskFault

texts = st.text(st.characters(codec="utf-8"), max_size=40)
events = st.builds(
    Event, st.just(0.0), st.floats(0, 1e9), st.sampled_from(["info", "error"]), st.sampled_from("ab"), texts
)


@given(st.lists(events | st.just(Event(0, 0, "info", "a", "again")), max_size=40), st.integers(0, 8000))
def test_the_newest_are_kept_and_repeats_are_counted(given_events: list[Event], bytes_max: int) -> None:
    kept = Events(bytes_max)
    plain: list[list[Event]] = []  # runs of the same
    for event in given_events:
        kept.add(event)
        if plain and (plain[-1][0].level, plain[-1][0].source, plain[-1][0].text) == (
            event.level,
            event.source,
            event.text,
        ):
            plain[-1].append(event)
        else:
            plain.append([event])
        assert kept.size <= bytes_max or len(kept.newest(2)) == 1

    found = kept.newest(len(plain))
    assert kept.size == sum(event.size for event in found)
    assert len(found) >= min(len(plain), 1)
    for event, run in zip(found, reversed(plain), strict=False):
        assert (event.text, event.count, event.began_at, event.at) == (run[0].text, len(run), 0.0, run[-1].at)
    if len(found) < len(plain):  # one more would have been too much
        assert kept.size + plain[-len(found) - 1][0].size > bytes_max
    assert kept.newest(1) == found[:1]


def test_an_error_in_a_line_gives_its_code_and_hint() -> None:
    error = AddressTaken("cannot listen", host="::1")
    event = event_of(1.0, "error", "cdc", f"it ended: {error}", ["x", error])
    assert event.code == "address_taken"
    assert event.hint == AddressTaken.hint
    assert event.text == "it ended: cannot listen (host=::1)"

    fault = SharedDiskFault("no space left")
    event = event_of(1.0, "error", "cdc", f"writing pauses: {fault}", [fault])
    assert event.code == fault.code
    assert event.hint == fault.hint
    assert event.text == "writing pauses: no space left"


def test_a_line_without_an_error_has_neither_and_long_ones_are_cut() -> None:
    event = event_of(1.0, "info", "cdc", "  two \n lines ", [ValueError("no code"), 3])
    assert (event.text, event.code, event.hint) == ("two lines", None, None)
    assert len(event_of(1.0, "info", "cdc", "x" * 10_000, []).text) == EVENT_CHARACTERS_MAX


def test_the_log_of_all_threads_is_heard_while_the_context_lasts() -> None:
    logger = logging.getLogger("test.console")
    logger.setLevel(logging.DEBUG)
    with recording() as recorder:
        logger.debug("too small")
        logger.warning("%s of %s", 1, 2)
        logger.error("%(what)s", {"what": AddressTaken("taken")})
        logger.error("it failed", exc_info=AddressTaken("again"))
        thread = threading.Thread(target=logger.info, args=("from a thread",))
        thread.start()
        thread.join()
        told = [event for event in recorder.newest(9) if event["source"] == "test.console"]
    logger.warning("too late")
    assert [(event["level"], event["text"], event["code"]) for event in told] == [
        ("info", "from a thread", None),
        ("error", "it failed: AddressTaken: again", "address_taken"),
        ("error", "taken", "address_taken"),
        ("warning", "1 of 2", None),
    ]
    assert recorder.newest(2)[0]["text"] != "too late"


def test_what_cannot_be_told_does_not_end_who_tells_it() -> None:
    before = logging.raiseExceptions
    logging.raiseExceptions = False  # as in a program: the library says nothing of it
    try:
        with recording() as recorder:
            logging.getLogger("test.console").error("%d", "no number")
            logging.getLogger("test.console").error("after it")
            assert recorder.newest(1)[0]["text"] == "after it"
    finally:
        logging.raiseExceptions = before
