"""unknown: nothing that was found decides, and no rule fits. There is no rule for it: it is what remains.

Signal:      none. The verdict names what was looked for, what could not be seen, and which records are there.
Not this:    a kill without a known sender (unexplained-kill); an exit status without a word (silent-exit).
Followed by: whatever it is followed by; nothing is read into it.
Needs:       what the verdict says could not be seen; `inquest doctor` says what can be done about it.
To do:       read the run's whole log (`journalctl _SYSTEMD_INVOCATION_ID=…`), and have the evidence complete before the
             next time.
"""
