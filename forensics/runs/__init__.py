"""Every run is remembered: what it was configured to, how fast it was, how it ended; and how runs compare. Pure."""
