"""Names as requests write them: every name can be written, and what is wrong is said in the protocol's words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.publication import quote
from shapes.errors import DefinitionError
from shapes.identifiers import column_list, parse_columns, parse_table_name
from shapes.limits import IDENTIFIER_CHARACTERS_MAX

characters = st.characters(codec="utf-8", exclude_characters="\0")
names = st.text(characters | st.sampled_from('".,aA '), min_size=1, max_size=IDENTIFIER_CHARACTERS_MAX)


def error_of(field: str, text: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        _ = parse_table_name(text) if field == "table" else parse_columns(text, field)
    assert list(caught.value.fields) == [field]
    [message] = caught.value.fields[field]
    return message


@given(names, names)
def test_every_name_can_be_written_with_quotes(schema: str, table: str) -> None:
    assert parse_table_name(f"{quote(schema)}.{quote(table)}") == (schema, table)
    assert parse_table_name(quote(table)) == ("public", table)


@given(st.lists(names, min_size=1))
def test_every_list_of_columns_can_be_written(columns: list[str]) -> None:
    assert parse_columns(",".join(map(quote, columns))) == tuple(columns)
    assert parse_columns(column_list(columns)) == tuple(columns)


def test_only_what_would_be_read_as_another_name_is_quoted() -> None:
    assert column_list(["id", "é_1", "V", "v,owner", 'a"b', ""]) == 'id,é_1,"V","v,owner","a""b",""'


@given(st.from_regex(r"[A-Za-z_é][A-Za-z0-9_$é]{0,62}", fullmatch=True))
def test_what_is_not_quoted_is_folded(name: str) -> None:
    folded = re.sub("[A-Z]", lambda match: match[0].lower(), name)
    assert parse_table_name(name) == ("public", folded)
    assert parse_table_name(f"S.{name}") == ("s", folded)


@given(st.text(st.sampled_from('aB1$ ".,é\0\ud800-'), max_size=8))
def test_any_text_is_a_name_or_an_error(text: str) -> None:
    try:
        schema, name = parse_table_name(text)
    except DefinitionError as error:
        assert [field for field, texts in error.fields.items() if texts] == ["table"]  # noqa: PT017  # either will do
    else:
        assert parse_table_name(f"{quote(schema)}.{quote(name)}") == (schema, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid zero-length delimited identifier"),
        ('""', "Invalid zero-length delimited identifier"),
        ("s.", "Invalid zero-length delimited identifier"),
        (".t", "Invalid zero-length delimited identifier"),
        (" ", "Invalid unquoted identifier contains special characters:  "),
        ("foob@r", "Invalid unquoted identifier contains special characters: foob@r"),
        ("1st", "Invalid unquoted identifier contains special characters: 1st"),
        ('Foo"Bar"', 'Invalid unquoted identifier contains special characters: Foo"Bar"'),
        ('"foo"."bar', 'Invalid unquoted identifier contains special characters: "bar'),
        ('"', 'Invalid unquoted identifier contains special characters: "'),
        ('"Foo"Bar"', 'Invalid identifier with unescaped quote: Foo"Bar'),
        ("a" * 64, "Identifier is too long (max length is 63)"),
        (f's."{"é" * 64}"', "Identifier is too long (max length is 63)"),
        ("a.b.c", "Invalid relation identifier, too many delimiters: a.b.c"),
        ('"a\0"', "Invalid identifier with a character that no text in Postgres has: 'a\\x00'"),
    ],
)
def test_wrong_tables_have_the_protocols_errors(text: str, message: str) -> None:
    assert error_of("table", text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid zero-length delimited identifier"),
        ("foo,", "Invalid zero-length delimited identifier"),
        (",foo", "Invalid zero-length delimited identifier"),
        ('"id,"name"', 'Invalid unquoted identifier contains special characters: "id'),
        ("id, name", "Invalid unquoted identifier contains special characters:  name"),
    ],
)
def test_wrong_columns_have_the_protocols_errors(text: str, message: str) -> None:
    assert error_of("columns", text) == message
    assert error_of("queryable_columns", text) == message


def test_commas_in_quotes_belong_to_the_name() -> None:
    assert parse_columns('"PoTaTo,sunday",FoO,"fo""o"') == ("PoTaTo,sunday", "foo", 'fo"o')
    assert parse_table_name('"foo.woah".bar') == ("foo.woah", "bar")
