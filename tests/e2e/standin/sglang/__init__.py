"""A stand-in, see launch_server.py."""
