"""What a person asked for and cannot have. Apart, since it must cost the command line nothing to know it."""


class Mistake(Exception):
    """The message says what is wrong, to the one who asked."""
