"""What all tests share: the profiles of Hypothesis, real servers, and coroutines as tests.

`HYPOTHESIS_PROFILE` chooses one: `default` is for every run, `thorough` for `make nemesis`.
"""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.coroutines", "tests.nginx", "tests.postgres"]

# No deadline and no complaint of slowness: a busy machine is not a fault of the code, and a test that hangs meets
# pytest's timeout. The blob makes a failure of another machine repeatable with @reproduce_failure.
settings.register_profile(
    "default", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
