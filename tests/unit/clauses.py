"""Where clauses and rows made up for tests of routing: a table with a column of each kind that the index knows."""

from collections.abc import Mapping, Sequence
from functools import cache

import pyarrow as pa
from hypothesis import strategies as st

from shapes.where.clause import Clause
from shapes.where.scalar import compile_scalar
from shapes.where.tree import Expr
from shapes.where.types import ColumnType
from shapes.where.values.value import Invalid

Row = Mapping[str, str | None]

TYPES = {
    "a": ColumnType(23),
    "b": ColumnType(20),
    "n": ColumnType(1700),
    "s": ColumnType(25),
    "v": ColumnType(1043),
    "c": ColumnType(1042, typmod=7),
    "d": ColumnType(1082),
    "f": ColumnType(16),
    "m": ColumnType(70_000, type_name="mood", is_enum=True),
    "i": ColumnType(1007),
    "t": ColumnType(1009),
}
TEXTS = {
    "a": ["0", "1", "2", "-3"],
    "b": ["0", "1", "7"],
    "n": ["0", "0.00", "1.50", "1.5", "NaN"],
    "s": ["", "x", "x ", "O'Neil", "é"],
    "v": ["", "x", "xy"],
    "c": ["x  ", "yy ", "   "],
    "d": ["2024-02-29", "infinity", "0044-03-15 BC"],
    "f": ["t", "f"],
    "m": ["sad", "ok"],
    "i": ["{}", "{1}", "{2,1}", "{NULL,1}", "{{1,2},{0,1}}", "[0:1]={1,2}"],
    "t": ["{}", "{x}", '{"x ",""}', "{NULL}", '{x,"NULL",é}'],
}
"""What each column may hold, as Postgres sends it; NULL besides."""
ELEMENTS = {"i": TEXTS["a"], "t": TEXTS["s"]}
SCALARS = [name for name in TYPES if name not in ELEMENTS]


@cache
def clause(sql: str) -> Expr:
    """A clause of the table, typed."""
    return Clause.of(sql, TYPES).tree


def quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def _values(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([*TEXTS[name], None]).map(quoted)


def _of_scalars(name: str) -> st.SearchStrategy[str]:
    value = _values(name)
    operators = st.sampled_from(["=", "=", "=", "<>"] if name in {"s", "v", "c", "m"} else ["=", "=", "<>", "<", ">="])
    lists = st.lists(value, min_size=1, max_size=4).map(", ".join)
    return st.one_of(
        st.builds(f"{name} {{}} {{}}".format, operators, value),
        st.builds(f"{{}} = {name}".format, value),
        st.builds(f"{name} IN ({{}})".format, lists),
    )


def _of_arrays(name: str) -> st.SearchStrategy[str]:
    value, element = _values(name), st.sampled_from([*ELEMENTS[name], None]).map(quoted)
    return st.one_of(
        st.builds(f"{name} @> {{}}".format, value),
        st.builds(f"{{}} <@ {name}".format, value),
        st.builds(f"{{}} = ANY ({name})".format, element),
        st.builds(f"{name} = {{}}".format, value),
    )


OTHERS = ["f", "NOT f", "f IS FALSE", "s IS NULL", "v LIKE 'x%'", "a::int8 = 1", "a = 1.5", "b::numeric = 1.0", "a = b"]
FAILING = ["1 / a > 0", "2 / b >= 1"]
SIDES = st.one_of(
    st.sampled_from(SCALARS).flatmap(_of_scalars),
    st.sampled_from([*ELEMENTS]).flatmap(_of_arrays),
    st.sampled_from(OTHERS + FAILING),
)
CLAUSES: st.SearchStrategy[str] = st.recursive(
    SIDES,
    lambda sides: st.one_of(
        st.builds("({} AND {})".format, sides, sides), st.builds("({} OR {})".format, sides, sides)
    ),
    max_leaves=5,
)
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([*texts, None]) for name, texts in TEXTS.items()}), max_size=24
)


def row(**values: str) -> Row:
    """A row with these values, and NULL elsewhere."""
    return {name: values.get(name) for name in TYPES}


def struct_of(rows: Sequence[Row]) -> pa.StructArray:
    """Rows as a batch has them: columns of text."""
    columns = [pa.array([one[name] for one in rows], pa.string()) for name in TYPES]
    return pa.StructArray.from_arrays(columns, [*TYPES])


FAILED = "failed"


def evaluate(where: Expr, one: Row) -> bool | str | None:
    """The plain meaning of a clause for one row; None for NULL.

    NULL AND an error has failed here, as in Postgres. Routing may say that the row does not match, which is as true.
    """
    try:
        value: bool | None = compile_scalar(where, list(one))(list(one.values()))
    except Invalid:
        return FAILED
    return value
