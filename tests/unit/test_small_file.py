"""Small files of facts, and who reads one while it is replaced.

Invariant: what is read is a file that was written, whole, however long the files are that take its name meanwhile
"""

from hypothesis import given
from hypothesis import strategies as st

from storage import small_file
from storage.memory_disk import MemoryDisk
from tests.unit.hooked_disk import hooked

PATH = "facts"

LENGTHS = st.lists(st.sampled_from([1, 10, 4_000, 4_050, 4_096, 9_000, 40_000]), min_size=1, max_size=8)


@given(lengths=LENGTHS)
def test_a_file_that_is_replaced_is_read_whole(lengths: list[int]) -> None:
    texts = [f"{number}{'.' * length}" for number, length in enumerate(lengths)]
    disk, successors = MemoryDisk(), iter(texts)

    def replace(*_: object) -> None:
        text = next(successors, None)
        if text is not None:
            small_file.write(disk, PATH, {"text": text})

    replace()
    assert small_file.read(hooked(disk, replace), PATH)["text"] in texts
