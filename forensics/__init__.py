"""Evidence → timeline → rules → verdict → store → api, alerts: what killed the server, and how we know."""
