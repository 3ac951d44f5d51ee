"""Specs in, systemd unit text out, and the thin layer that puts the files in place."""
