"""For all tests."""

import signal

# A shell's background jobs ignore SIGINT, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
