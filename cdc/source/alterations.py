"""What somebody else altered in the publication, until whoever it concerns has been ended for it. Pure.

    found ---> taken, by one who ends the shapes ---> handled
      ^          |
      '----------'  given back, if he could not

Invariants:
    a change is taken by one at a time, and is forgotten only when it was handled
    while anything is not handled nobody may record how the publication is: a process that began after that would see
        no difference, and the shapes would go on with a hole
    a connection brings its own verdict, against what was recorded; what was found before it is in there
"""

from collections.abc import Iterable

from cdc.source.publication import PublicationChange

Changes = tuple[PublicationChange, ...]


class Alterations:
    """The changes of one publication."""

    def __init__(self) -> None:
        self.count = 0
        """How many were ever found: whoever waited sees that there were more."""
        self._found: list[PublicationChange] = []
        self._taken: list[Changes] = []
        self._is_judged = True

    @property
    def found(self) -> Changes:
        """Those that nobody has taken."""
        return tuple(self._found)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do, so that the publication may be recorded as it is."""
        return self._is_judged and not self._found and not self._taken

    def find(self, changes: Iterable[PublicationChange]) -> None:
        """Somebody else did this."""
        found = list(changes)
        self._found += found
        self.count += len(found)

    def take(self) -> Changes:
        """Whoever takes them ends the shapes, and says `handled`; or gives them back."""
        taken, self._found = tuple(self._found), []
        if taken:
            self._taken.append(taken)
        return taken

    def handled(self, taken: Changes) -> None:
        """The shapes have ended, on disk."""
        self._taken = [one for one in self._taken if one is not taken]

    def give_back(self, taken: Changes) -> None:
        """They have not; somebody else has to."""
        if any(one is taken for one in self._taken):
            self.handled(taken)
            self._found += taken

    def connected(self) -> None:
        """A connection begins; until its verdict is dealt with nothing is settled."""
        self._found, self._taken, self._is_judged = [], [], False

    def judged(self) -> None:
        """The verdict is dealt with."""
        self._is_judged = True
