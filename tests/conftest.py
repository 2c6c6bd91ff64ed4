"""What all tests share: the profiles of Hypothesis, real servers, coroutines as tests, and how a process is set up.

`HYPOTHESIS_PROFILE` chooses one: `default` is for every run, `thorough` for `make nemesis`.
"""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.coroutines", "tests.nginx", "tests.postgres"]

# No deadline and no complaint of slowness: a busy machine is not a fault of the code, and a test that hangs meets
# pytest's timeout. The blob makes a failure of another machine repeatable with @reproduce_failure.
settings.register_profile(
    "default", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Spark lives for seconds here: Java's second compiler and its parallel collector are half of its processor time, and
# never bring it back. Java says a line about this variable, to its standard error.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell that starts something in the background lets it ignore Ctrl-C, and so would all that a test starts and
# interrupts: those tests would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not look at five thousand tests again and again."""
    gc.collect()
    gc.freeze()
