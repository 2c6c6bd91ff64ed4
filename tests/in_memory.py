"""What is in memory: objects by kind, for tests of what must not stay."""

import gc


def alive(*kinds: type) -> int:
    """How many objects of these kinds there are; those that other tests have left are among them."""
    gc.collect()
    return sum(type(one) in kinds for one in gc.get_objects())
