"""Who may use the server: what a request offers, and which hosts only this machine reaches."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import AddressOpen
from cdc.http.access import check_address, has_secret, is_loopback, secrets_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nobody listens there
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(TEXTS, st.lists(TEXTS))
def test_only_the_secret_opens(secret: str, others: list[str]) -> None:
    assert has_secret(secret, [*others, secret])
    assert has_secret(secret, others) == (secret in others)


@given(TEXTS)
def test_a_secret_of_any_letters_arrives_in_the_query(secret: str) -> None:
    query = f"table=items&secret={quote(secret, safe='')}".encode()
    assert secrets_of(None, query) == [secret]


@given(TEXTS.map(str.strip).filter(bool))
def test_a_secret_of_any_letters_arrives_in_the_header(secret: str) -> None:
    assert secrets_of(f"bearer {secret.encode().decode('latin-1')}", b"") == [secret.strip()]


@pytest.mark.parametrize(
    ("authorization", "query", "found"),
    [
        (None, b"", []),
        ("Basic dXNlcjpzZWNyZXQ=", b"", []),
        ("Bearer one", b"secret=two&api_secret=three&other=four", ["two", "three", "one"]),
        (None, b"secret=", []),
        (None, b"secret=%ff%fe", ["\ufffd\ufffd"]),
        (None, b"SECRET=x", []),
    ],
)
def test_what_a_request_offers(authorization: str | None, query: bytes, found: list[str]) -> None:
    assert secrets_of(authorization, query) == found


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "LOCALHOST"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_address(host, None, insecure=False)


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.1", "db.example.org", "", "127.0.0.1.example.org"])
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)
    for secret in (None, ""):
        with pytest.raises(AddressOpen):
            check_address(host, secret, insecure=False)
    check_address(host, "secret", insecure=False)
    check_address(host, None, insecure=True)
