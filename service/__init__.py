"""The SGLang server itself: its spec, its command line, the checks before start, readiness, and what remains."""
