"""What tests of Spark share."""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext


@pytest.fixture(scope="module", autouse=True)
def java_of_its_own() -> Iterator[None]:
    """Each module's sessions begin with a Java of their own: it outlives them, and keeps what the first one told it."""
    yield
    gateway = SparkContext._gateway
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()  # which is how it learns that it is wanted no more
        gateway.proc.wait(60)
