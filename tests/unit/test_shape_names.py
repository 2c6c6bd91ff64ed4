"""Names of shapes: any table gives one that is allowed, and a taken one leads to a free one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.errors import InvalidShapeName
from shapes.limits import SHAPE_NAME_BYTES_MAX
from shapes.shape_names import check_name, default_name, free_name

texts = st.text(st.characters(codec="utf-8") | st.sampled_from("./ -a"), min_size=1, max_size=150)


@given(texts, texts)
def test_every_table_has_a_default_name(schema: str, table: str) -> None:
    check_name(default_name(schema, table))
    check_name(default_name("public", table))


@pytest.mark.parametrize(
    ("schema", "table", "name"),
    [
        ("public", "orders", "orders"),
        ("sales", "orders", "sales.orders"),
        ("public", "Größe", "Größe"),
        ("public", "a b/c", "a_b_c"),
        ("public", "../x", "_.._x"),
        ("public", "-x", "_-x"),
    ],
)
def test_a_default_name_is_the_tables(schema: str, table: str, name: str) -> None:
    assert default_name(schema, table) == name


@given(st.integers(1, 12), st.integers(1, SHAPE_NAME_BYTES_MAX))
def test_a_taken_name_leads_to_the_first_free_one(taken_count: int, length: int) -> None:
    wanted = "é" * (length // 2) + "x" * (length % 2)
    taken = {wanted}
    for _ in range(taken_count):
        free = free_name(wanted, lambda name: name not in taken)
        check_name(free)
        assert free not in taken
        taken.add(free)
    assert free.endswith(f"_{taken_count + 1}")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-rf", "a/b", "a b", "a\0", "a\n", "orders\n", "x" * 128])
def test_a_name_that_could_not_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidShapeName):
        check_name(name)
