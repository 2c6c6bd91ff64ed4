"""Where clauses and rows for them, made up: every type, operator and function that is supported, with odd values."""

from hypothesis import strategies as st

from shapes.where.types import Collation, ColumnType

# Columns of the table, by name; with what Hypothesis may put into them and into constants beside them.
COLUMNS = {
    "i2": "int2", "i4": "int4", "j4": "int4", "i8": "int8", "f4": "float4", "f8": "float8", "n": "numeric", "t": "text",
    "u": "text", "v": "varchar(12)", "c": "char(5)", "na": "name", "id": "uuid", "bo": "bool", "d": "date",
    "ti": "time", "ts": "timestamp", "tz": "timestamptz", "iv": "interval", "ai": "int4[]", "an": "numeric[]",
    "at": "text[]", "mood": "mood", "js": "json", "weird \"Name'": "int4",
}  # fmt: skip
OIDS = {
    "int2": 21, "int4": 23, "int8": 20, "float4": 700, "float8": 701, "numeric": 1700, "text": 25, "varchar(12)": 1043,
    "char(5)": 1042, "name": 19, "uuid": 2950, "bool": 16, "date": 1082, "time": 1083, "timestamp": 1114,
    "timestamptz": 1184, "interval": 1186, "int4[]": 1007, "numeric[]": 1231, "text[]": 1009, "json": 114,
}  # fmt: skip
DESCRIBED = {
    name: ColumnType(OIDS.get(kind, 90_000), type_name="public.mood", is_enum=kind == "mood", collation=Collation.C)
    for name, kind in COLUMNS.items()
}

_small = st.integers(-3, 12).map(str)
_words = st.text("ab%_\\'\"é ÄZ{},€😀", max_size=6)
_numbers = st.one_of(
    _small,
    st.sampled_from(
        [
            "0.5",
            "1.0",
            "1.00",
            "-0.0",
            "100",
            "1e3",
            "NaN",
            "Infinity",
            "-Infinity",
            "123456789012345678901234567890.5",
            "0.1",
            "2.5",
        ]
    ),
    st.decimals(-1000, 1000, places=3).map(str),
)
_floats = st.one_of(
    _small,
    st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "-0", "0.1", "1e30", "1.5e-30", "3.4e38", "2.5", "1e15", "123456.7"]
    ),
)
_dates = st.one_of(
    st.sampled_from(
        ["infinity", "-infinity", "0044-03-15 BC", "2000-02-29", "2024-01-31", "12000-01-01", "1999-12-31"]
    ),
    st.dates().map(str),
)
_times = st.one_of(st.sampled_from(["00:00:00", "24:00:00", "23:59:59.999999", "12:30:00"]), st.times().map(str))
_timestamps = st.one_of(
    st.sampled_from(
        ["infinity", "-infinity", "0044-03-15 10:00:00.5 BC", "2000-02-29 00:00:00", "2024-01-31 23:59:59.999999"]
    ),
    st.datetimes().map(str),
    _dates,
)
_intervals = st.one_of(
    st.sampled_from(
        ["1 month", "30 days", "-1 day", "P1Y2M3DT4H5M6.7S", "PT0S", "24:00:00", "1 mon -1 day", "PT-0.5S", "720 hours"]
    ),
    st.builds("{} mons {} days {} secs".format, st.integers(-20, 20), st.integers(-40, 40), st.integers(-99999, 99999)),
)
_uuids = st.sampled_from(
    ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC999C0B4EF8BB6D6BB9BD380A12", "00000000-0000-0000-0000-000000000000"]
)


def _array(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    item = st.one_of(elements.map(quoted), elements.map(quoted), st.just("NULL"))
    flat = st.lists(item, max_size=4).map(lambda items: "{" + ",".join(items) + "}")
    square = st.tuples(item, item, item, item).map(lambda i: "{{{{{},{}}},{{{},{}}}}}".format(*i))
    shifted = st.tuples(item, item).map(lambda i: "[0:1]={{{},{}}}".format(*i))
    return st.one_of(flat, flat, square, shifted)


VALUES: dict[str, st.SearchStrategy[str]] = {
    "int2": st.one_of(_small, st.sampled_from(["32767", "-32768"])),
    "int4": st.one_of(_small, st.sampled_from(["2147483647", "-2147483648"])),
    "int8": st.one_of(_small, st.sampled_from(["9223372036854775807", "-9223372036854775808"])),
    "float4": _floats,
    "float8": st.one_of(_floats, st.just("1e300")),
    "numeric": _numbers,
    "text": _words,
    "varchar(12)": _words,
    "char(5)": st.text("ab é", max_size=5),
    "name": _words,
    "uuid": _uuids,
    "bool": st.sampled_from(["true", "false"]),
    "date": _dates,
    "time": _times,
    "timestamp": _timestamps,
    "timestamptz": _timestamps,
    "interval": _intervals,
    "int4[]": _array(_small),
    "numeric[]": _array(_numbers),
    "text[]": _array(_words),
    "mood": st.sampled_from(["sad", "ok", "it's"]),
    "json": st.sampled_from(["{}", '{"a": 1}']),
}
# Types whose expressions the generator makes, by the name of the type.
PLAIN = [
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar(12)",
    "char(5)",
    "name",
    "uuid",
    "bool",
]
PLAIN += ["date", "time", "timestamp", "timestamptz", "interval", "int4[]", "numeric[]", "text[]"]
COMPARISONS = ["=", "<>", "<", ">", "<=", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]

_F = {
    "int2": ["{int2} + {int2}", "-{int2}", "~{int2}", "{int4}::int2", "{int2} & {int2}"],
    "int4": [
        "{int4} + {int4}",
        "{int4} - {int2}",
        "{int4} * {int4}",
        "{int4} / {int4}",
        "{int4} % {int4}",
        "-{int4}",
        "@ {int4}",
        "{int4} # {int4}",
        "{int4} | {int4}",
        "{date} - {date}",
        "{int4[]}[{int4}]",
        "array_ndims({int4[]})",
        "{bool}::int4",
        "{numeric}::int4",
        "{float8}::int4",
        "int4({int8})",
        "coalesce({int4}, {int2})",
        "greatest({int4}, {int4}, {int2})",
    ],
    "int8": [
        "{int8} + {int4}",
        "{int4}::int8",
        "{int8} * {int2}",
        "{int8} / {int4}",
        "least({int8}, {int4})",
        "@ {int8}",
    ],
    "float4": ["{float4} * {float4}", "-{float4}", "{float8}::float4", "{int4}::float4", "{numeric}::real"],
    "float8": [
        "{float8} + {float8}",
        "{float8} / {float4}",
        "{float8} * {int4}",
        "{float8} ^ 2",
        "{int4} ^ {int2}",
        "|/ {float8}",
        "{numeric}::float8",
        "@ {float8}",
        "{float8} - {float8}",
        "{text}::float8",
    ],
    "numeric": [
        "{numeric} + {numeric}",
        "{numeric} - {int4}",
        "{numeric} * {numeric}",
        "{numeric} / {numeric}",
        "{int4} / {numeric}",
        "{numeric} % {numeric}",
        "{float8}::numeric",
        "{float4}::numeric",
        "{numeric}::numeric(6,2)",
        "-{numeric}",
        "{text}::numeric",
        "@ {numeric}",
        "{numeric[]}[1]",
        "{int8} * {numeric}",
    ],
    "text": [
        "{text} || {text}",
        "{text} || {int4}",
        "{numeric} || {text}",
        "lower({text})",
        "upper({text})",
        "concat({text}, {bool}, {date})",
        "{numeric}::text",
        "{float8}::text",
        "{float4}::text",
        "{date}::text",
        "{timestamptz}::text",
        "{interval}::text",
        "{bool}::text",
        "{int4[]}::text",
        "{text[]}::text",
        "{char(5)}::text",
        "{timestamp} || 'x'",
        "{text}::varchar(2)",
        "coalesce({text}, {varchar(12)})",
        "mood::text",
        "js::text",
        "{text[]}[2]",
        "{char(5)} || {text}",
        "concat({char(5)}, {numeric}, {text[]})",
        "greatest({text}, {text})",
        '{text} COLLATE "C"',
        "{time}::text",
        "{uuid} || ''",
        "{name} || {text}",
        "{bool} || {text}",
        "{interval} || {text}",
    ],
    "varchar(12)": ["{text}::varchar", "{varchar(12)}::varchar(3)", "{int4}::varchar"],
    "char(5)": ["{text}::char(3)", "{char(5)}::bpchar", "{text}::bpchar"],
    "name": ["{text}::name"],
    "uuid": ["{text}::uuid"],
    "bool": ["{int4}::bool", "{text}::bool", "coalesce({bool}, {bool})"],
    "date": [
        "{date} + {int2}",
        "{date} - {int2}",
        "{timestamp}::date",
        "{timestamptz}::date",
        "{int2} + {date}",
        "{text}::date",
    ],
    "time": ["{time} + {interval}", "{timestamp}::time", "{interval}::time", "{time} - {interval}", "{time}::time(1)"],
    "timestamp": [
        "{timestamp} + {interval}",
        "{date} + {interval}",
        "{timestamp} - {interval}",
        "{date} + {time}",
        "{timestamptz} AT TIME ZONE 'UTC'",
        "{date}::timestamp",
        "{timestamptz}::timestamp",
        "{interval} + {timestamp}",
        "{timestamp}::timestamp(2)",
        "{timestamptz} AT TIME ZONE INTERVAL '-02:30'",
    ],
    "timestamptz": [
        "{timestamptz} + {interval}",
        "{timestamp} AT TIME ZONE 'utc'",
        "{timestamptz} - {interval}",
        "{timestamp}::timestamptz",
    ],
    "interval": [
        "{timestamp} - {timestamp}",
        "{interval} + {interval}",
        "{interval} * {int2}",
        "{interval} / 3",
        "{interval} * 1.5",
        "-{interval}",
        "justify_days({interval})",
        "justify_hours({interval})",
        "justify_interval({interval})",
        "{time}::interval",
        "{time} - {time}",
        "{timestamptz} - {timestamptz}",
        "{interval} - {interval}",
        "INTERVAL '3' DAY",
        "0.7 * {interval}",
    ],
    "int4[]": [
        "{int4[]} || {int4[]}",
        "{int4[]} || {int4}",
        "{int4} || {int4[]}",
        "array_append({int4[]}, {int4})",
        "ARRAY[{int4}, {int4}]",
        "array_prepend({int4}, {int4[]})",
        "array_cat({int4[]}, {int4[]})",
        "{int4[]}[{int4}:{int4}]",
        "{int4[]}[:2]",
        "{numeric[]}::int4[]",
        "ARRAY[{int4[]}, {int4[]}]",
        "{int4[]}[1:2][1]",
        "ARRAY[]::int4[]",
    ],
    "numeric[]": [
        "{numeric[]} || {numeric}",
        "ARRAY[{numeric}, {int4}]",
        "{int4[]}::numeric[]",
        "{int4[]} || {numeric}",
    ],
    "text[]": ["{text[]} || {text}", "ARRAY[{text}, {text}]", "{int4[]}::text[]", "{text[]} || {text[]}"],
}

_B = [
    "{any} IS NULL",
    "{any} IS NOT NULL",
    "{bool} IS TRUE",
    "{bool} IS NOT FALSE",
    "{bool} IS UNKNOWN",
    "NOT {bool}",
    "{bool} AND {bool}",
    "{bool} OR {bool}",
    "({bool} OR {bool}) AND {bool}",
    "{text} LIKE {pattern}",
    "{text} NOT LIKE {pattern}",
    "{text} ILIKE {pattern}",
    "{char(5)} LIKE {pattern}",
    "{name} LIKE {pattern}",
    "{varchar(12)} NOT ILIKE {pattern}",
    "{text} LIKE {pattern} ESCAPE '!'",
    "like({text}, {pattern})",
    "{int4[]} @> {int4[]}",
    "{int4[]} <@ {int4[]}",
    "{text[]} && {text[]}",
    "{numeric[]} @> {numeric[]}",
    "{int4} = ANY({int4[]})",
    "{int4} <> ALL({int4[]})",
    "{text} = ANY({text[]})",
    "{numeric} > ALL({numeric[]})",
    "{text} LIKE ANY({text[]})",
    "{int8} = ANY({int4[]})",
    "({int4}, {text}) = ({int2}, {text})",
    "({int4}, {int4}) < ({int4}, {int8})",
    "({int4}, {text}) IN (({int4}, {text}), ({int4}, 'a'))",
    "({int4}, {date}) IS DISTINCT FROM ({int4}, {date})",
    "({int4}, {int4}) >= ({int4}, 1)",
    "({int4}, {text}) IS NULL",
    "mood = 'sad'",
    "mood IN ('ok', 'it''s')",
    "mood <> 'ok'",
    "mood IS NOT NULL",
    "js IS NULL",
    "js::text LIKE '%a%'",
    '"weird ""Name\'" > {int4}',
    "{int4} = {int8}",
    "{int4} < {numeric}",
    "{float4} = {float8}",
    "{numeric} >= {float8}",
    "{date} < {timestamp}",
    "{date} = {timestamptz}",
    "{varchar(12)} = {text}",
    "{char(5)} = {text}",
    "{name} < {text}",
    "{char(5)} = {varchar(12)}",
    "{int2} = {int8}",
    "{timestamp} <= {timestamptz}",
    "{time} < {interval}",
    "mood::text > {text}",
    "{text}::int4 = 1",
    "mood = mood",
]


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> str:
    """An expression of this type: a column, a constant with or without its type, or something made of others."""
    columns = [name for name, its in COLUMNS.items() if its == kind and '"' not in name]
    choice = draw(st.integers(0, 9))
    if depth <= 0 or choice < 5:
        if choice % 5 < 3:
            return draw(st.sampled_from(columns))
        text = draw(VALUES[kind]).replace("'", "''")
        return f"'{text}'::{kind}" if kind != "bool" else text
    return "(" + draw(_filled(draw(st.sampled_from(_F[kind])), depth - 1)) + ")"


@st.composite
def _filled(draw: st.DrawFn, form: str, depth: int) -> str:
    """The form with an expression for each type in braces."""
    result, rest = "", form
    while "{" in rest:
        before, _, rest = rest.partition("{")
        kind, _, rest = rest.partition("}")
        if kind == "pattern":
            filled = quoted(draw(_words))
        else:
            kind = draw(st.sampled_from(PLAIN)) if kind == "any" else kind
            filled = draw(predicates(depth)) if kind == "bool" and depth > 0 else draw(expressions(kind, depth))
        result += before + (f"({filled})" if " " in filled else filled)
    return result + rest


@st.composite
def predicates(draw: st.DrawFn, depth: int) -> str:
    """A clause."""
    choice = draw(st.integers(0, 9))
    if choice < 4:
        return draw(_filled(draw(st.sampled_from(_B)), depth - 1))
    kind = draw(st.sampled_from(PLAIN))
    left = draw(expressions(kind, depth - 1))
    constants = VALUES[kind].map(quoted)
    if choice < 7:
        right = draw(st.one_of(constants, expressions(kind, depth - 1)))
        return f"{left} {draw(st.sampled_from(COMPARISONS))} {right}"
    negated = draw(st.sampled_from(["", "NOT "]))
    if choice < 9:
        values = draw(st.lists(st.one_of(constants, st.just("NULL"), expressions(kind, 0)), min_size=1, max_size=4))
        return f"{left} {negated}IN ({', '.join(values)})"
    symmetric = draw(st.sampled_from(["", "SYMMETRIC "]))
    return f"{left} {negated}BETWEEN {symmetric}{draw(constants)} AND {draw(expressions(kind, 0))}"


def quoted(text: str) -> str:
    """A text as a constant of SQL."""
    return "'" + text.replace("'", "''") + "'"


Row = tuple[str | None, ...]
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(*(st.one_of(st.none(), *[VALUES[kind]] * 4) for kind in COLUMNS.values())), min_size=1, max_size=24
)
