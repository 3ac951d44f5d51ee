"""The command line as tests run it."""

from collections.abc import Callable

Inquest = Callable[..., int]
"""The fixture `inquest`: takes the arguments, returns the exit status."""
