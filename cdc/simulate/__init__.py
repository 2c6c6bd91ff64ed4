"""The whole program beside a made-up server, on a made-up disk, in made-up time: every run follows from its seed."""
