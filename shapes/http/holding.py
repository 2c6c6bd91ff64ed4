"""Live requests that are held until there is news of their shape: one task for each handle, however many wait for it.

What a request needs while it waits is a few words: where it stands, until when, and its connection. When the shape has
news, its page is made once for all who stand at the same place, and so are the headers; each connection gets the same
bytes. Whoever asks the very same as somebody who is held is held beside him, and nothing is found out again.

Invariants:
    whoever is held is answered once, or has left; either is told to `on_end` once
    nobody misses news: whoever comes looks at V after he is in the list
    while many are answered, others have their turn
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from shapes.http.clients import Client, Outflow
from shapes.http.connection import Connection
from shapes.http.encoding import up_to_date
from shapes.http.envelope import SHAPE_PATH, common_headers
from shapes.http.exchange import STATUS_LINES
from shapes.http.limits import CONNECTIONS_SLICE, QUESTIONS_KEPT, SEND_PIECE_BYTES
from shapes.http.pages import Page
from shapes.http.params import ShapeQuery
from shapes.http.problems import Problem, failed
from shapes.http.responses import JSON, Facts, Headers, answer_of, for_request
from shapes.http.row_format import RowFormat
from shapes.http.serving import Serving
from shapes.service import Served
from storage.marks import Marks
from storage.offset import LogOffset

logger = logging.getLogger(__name__)

Question = tuple[str, bytes]
"""A request's method and query: as they came, or as the token that came with them completes them."""


@dataclass(slots=True, eq=False)
class Held:
    """A request that waits."""

    place: "Place"
    connection: Connection
    deadline: float
    origin: str | None
    has_token: bool

    def left(self) -> None:
        """Its client is gone."""
        self.place.leave(self)


class Place:
    """Where all stand who get the same answer, in the order in which they came: the first one's time is up first."""

    __slots__ = ("cursor", "group", "method", "offset", "questions", "requests", "seen")

    def __init__(self, group: "_Group", offset: LogOffset, cursor: int | None, method: str) -> None:
        self.group = group
        self.offset = offset
        self.cursor = cursor
        self.method = method
        self.seen = offset
        """The greatest V up to which there is nothing for them."""
        self.questions: list[Question] = []
        """The first few requests that led here, as they came."""
        self.requests: dict[Held, None] = {}

    def leave(self, held: Held) -> bool:
        """One waits no longer; whether it did."""
        if held not in self.requests:
            return False
        del self.requests[held]
        self.group.left(self)
        return True


@dataclass(frozen=True, slots=True)
class _Answer:
    """What those get who stand at the same place."""

    head: bytes
    private_head: bytes
    """For those with a token, whose caches are their own."""
    body: bytes


class _Group:
    """The places of one handle."""

    __slots__ = ("_holding", "form", "marks", "news", "places", "served")

    def __init__(self, holding: "Holding", served: Served, form: RowFormat, marks: Marks) -> None:
        self.served = served
        self.form = form
        self.marks = marks
        self.places: dict[tuple[LogOffset, int | None, str], Place] = {}
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is worth looking again, whatever V is."""
        self._holding = holding

    def left(self, place: Place) -> None:
        """One who stood there is gone."""
        self._holding.ended(self.served)
        if not place.requests:
            self.places.pop((place.offset, place.cursor, place.method), None)
            self._holding.forget(place)
        if not self.places:
            self.look()

    def look(self) -> None:
        """Have its task look again."""
        if not self.news.done():
            self.news.set_result(None)


class Holding:
    """All who are held."""

    def __init__(
        self,
        serving: Serving,
        outflow: Outflow,
        headers_of: Callable[[Facts], Headers],
        on_end: Callable[[Served], None],
    ) -> None:
        """`headers_of` an answer, apart from those that all answers have; `on_end`: one of a shape's readers ended."""
        self.count = 0
        """Requests that are held."""
        self.waiting = 0
        """Handles whose task waits at the moment, on behalf of all who are held."""
        self._given = 0
        self._serving = serving
        self._outflow = outflow
        self._headers_of = headers_of
        self._on_end = on_end
        self._groups: dict[str, _Group] = {}
        self._questions: dict[Question, Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def known(self, question: Question) -> Place | None:
        """Where somebody is held who asked the very same, if there still is nothing for them."""
        place = self._questions.get(question)
        if place is None or self._serving.wakes.is_stopping:
            return None
        visible = place.group.marks.visible
        return None if visible.closed or place.seen < visible.value else place

    def place(self, served: Served, form: RowFormat, query: ShapeQuery, question: Question, seen: LogOffset) -> Place:
        """Where a request stands for which there is nothing up to the V `seen`; it is held there next."""
        assert query.offset is not None, "whoever is held goes on from somewhere"
        group = self._groups.get(served.handle)
        if group is None:
            group = self._groups[served.handle] = _Group(self, served, form, self._serving.service.watch(served))
            self._run(self._attend(group))
        key = (query.offset, query.cursor, question[0])
        place = group.places.get(key)
        if place is None:
            place = group.places[key] = Place(group, *key)
        place.seen = max(place.seen, seen)
        if len(place.questions) < QUESTIONS_KEPT and question not in self._questions:
            self._questions[question] = place
            place.questions.append(question)
        return place

    def hold(self, place: Place, client: Client, deadline: float, origin: str | None) -> None:
        """Answer a request when V is above what was seen, the handle is over, or at its deadline."""
        held = Held(place, client.connection, deadline, origin, client.has_token)
        place.requests[held] = None
        self.count += 1
        held.connection.hold(held)
        if self._serving.wakes.is_stopping or place.seen < place.group.marks.visible.value:
            place.group.look()

    def ended(self, served: Served) -> None:
        """A request was answered, or its client left."""
        self.count -= 1
        self._on_end(served)

    def forget(self, place: Place) -> None:
        """Nobody stands there."""
        for question in place.questions:
            del self._questions[question]

    # One task for a handle

    async def _attend(self, group: _Group) -> None:
        wakes = self._serving.wakes
        try:
            while group.places:
                group.news = asyncio.get_running_loop().create_future()
                above = await self._look(group)
                deadline = min((next(iter(place.requests)).deadline for place in group.places.values()), default=None)
                if deadline is not None:
                    self.waiting += 1
                    try:
                        await wakes.wait(group.served, above, deadline - self._serving.now(), group.news)
                    finally:
                        self.waiting -= 1
        except Exception as error:  # all are told, and nobody waits for nothing
            if not isinstance(error, Problem):
                logger.exception("those who wait for the shape %s cannot be answered", group.served.handle)
            answer = _told(error if isinstance(error, Problem) else failed())
            while group.places:
                for place in list(group.places.values()):
                    await self._give(place, list(place.requests), answer)
        finally:
            del self._groups[group.served.handle]

    async def _look(self, group: _Group) -> LogOffset:
        """Answer those for whom there is something; the V that all others have seen at least."""
        above = self._serving.visible(group.served)
        for place in list(group.places.values()):
            try:
                page = await self._serving.page(group.served, group.form, place.offset)
            except Problem as problem:
                await self._give(place, list(place.requests), _told(problem))
                continue
            if page.rows or not page.is_end:
                await self._give(place, list(place.requests), self._news(place, page))
                continue
            place.seen = max(place.seen, page.seen)
            end = float("inf") if self._serving.wakes.is_stopping else self._serving.now()
            late = _late(place.requests, end)
            if late:
                await self._give(place, late, self._nothing(place, page))
        return above

    async def _give(self, place: Place, those: list[Held], answer: _Answer) -> None:
        """The same answer to each, some at a time."""
        for held in those:
            if not place.leave(held):
                continue
            shared = answer.private_head if held.has_token else answer.head
            head = b"".join((shared, *lines_of(common_headers(SHAPE_PATH, held.origin))))
            body = b"" if place.method == "HEAD" else answer.body
            if len(body) <= SEND_PIECE_BYTES:
                held.connection.answer(head, body)
            else:
                self._run(self._give_long(held, head, body))
            self._given += 1
            if self._given % CONNECTIONS_SLICE == 0:  # of all places: each reader may stand at one of his own
                await asyncio.sleep(0)

    async def _give_long(self, held: Held, head: bytes, body: bytes) -> None:
        # Not refused, as new ones are: it is the answer to who waited, and pieces bound what each connection holds.
        self._outflow.add(len(body))
        try:
            await held.connection.answer_in_pieces(head, body)
        finally:
            self._outflow.leave(len(body))

    def _news(self, place: Place, page: Page) -> _Answer:
        facts = Facts(
            place.group.served.handle,
            place.offset,
            page.next,
            live=True,
            is_up_to_date=page.is_end,
            cursor=place.cursor,
        )
        return self._rows(facts, place.method, page_body(page, page.next.tx if page.is_end else None))

    def _nothing(self, place: Place, page: Page) -> _Answer:
        served = place.group.served
        facts = Facts(
            served.handle,
            place.offset,
            page.next,
            live=True,
            has_data=False,
            is_up_to_date=True,
            cursor=place.cursor,
        )
        return self._rows(facts, place.method, page_body(page, self._serving.last_seen(self._serving.visible(served))))

    def _rows(self, facts: Facts, method: str, body: bytes) -> _Answer:
        headers = [JSON, *self._headers_of(facts)]
        public, private = (for_request(headers, method, has_token=has_token) for has_token in (False, True))
        return _Answer(_head(200, public, body), _head(200, private, body), body)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _late(requests: Iterable[Held], end: float) -> list[Held]:
    return list(takewhile(lambda held: held.deadline <= end, requests))


def page_body(page: Page | None, last_seen: int | None) -> bytes:
    """A page as a JSON array; with the last transaction seen, if that is all there is."""
    messages = b"" if page is None else page.messages
    if last_seen is not None:
        return b"".join((b"[", messages, up_to_date(last_seen), b"]"))
    return b"".join((b"[", memoryview(messages)[:-1], b"]"))  # the comma behind the last one goes


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Headers as they are sent."""
    return (b"%b: %b\r\n" % pair for pair in headers)


def _head(status: int, headers: Headers, body: bytes) -> bytes:
    texts = [*headers, ("content-length", str(len(body)))]
    raw = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in texts)
    return b"".join((STATUS_LINES[status], *lines_of(raw)))


def _told(problem: Problem) -> _Answer:
    headers, body = answer_of(problem)
    head = _head(problem.status, headers, body)
    return _Answer(head, head, body)
