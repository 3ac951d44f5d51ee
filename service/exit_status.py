"""Exit statuses of Inquest's own processes in a server's unit; PID 1 records them, so the daemon can rely on them.

They are those of ``sysexits.h`` that fit, since systemd prints their names (``status=69/UNAVAILABLE``).
"""

NOT_READY = 75  # ExecStartPost=: EX_TEMPFAIL, the server ended, or lost its port, before it answered
PREFLIGHT_REFUSED = 69  # ExecStartPre=: EX_UNAVAILABLE, what the server needs is not there
SPEC_REFUSED = 78  # ExecStart= of the unit made from a spec with mistakes: EX_CONFIG
