"""``python -m service STEP NAME``: the steps around a server that its unit runs. For people there is ``inquest``.

Each step imports only what it needs: ``remains`` runs while a unit is being taken down.
"""

from __future__ import annotations

import sys

from service.health import Endpoint

_WHERE = {"--host": True, "--port": True, "--https": False}

USAGE = """\
usage: python -m service leftovers NAME
       python -m service preflight NAME [--digest DIGEST]
       python -m service wait-ready NAME --host HOST --port PORT [--https] [--watchdog]
       python -m service heartbeat NAME --host HOST --port PORT [--https] [--give-up SECONDS]
       python -m service drain NAME --limit SECONDS
       python -m service remains NAME
       python -m service gpus
"""


def main(argv: list[str]) -> int:
    match argv:
        case ["remains", server]:
            from service import remains

            return remains.main(server)
        case ["wait-ready", server, *options] if found := _options(options, _WHERE | {"--watchdog": False}):
            from service import ready

            return ready.main(server, _endpoint(found), watchdog="--watchdog" in found)
        case ["heartbeat", server, *options] if found := _options(options, _WHERE | {"--give-up": True}):
            from service import heartbeat

            seconds = float(found["--give-up"]) if "--give-up" in found else None
            return heartbeat.main(server, _endpoint(found), seconds)
        case ["drain", _, "--limit", limit]:
            from service import drain

            return drain.main(float(limit))
        case ["leftovers", server]:
            from service import leftovers

            return leftovers.main(server)
        case ["gpus"]:
            from service import gpus

            return gpus.main()
        case ["preflight", server, *digest] if digest[:1] in ([], ["--digest"]):
            from service import preflight

            return preflight.main(server, digest[1] if digest else None)
    sys.stderr.write(USAGE)
    return 2


def _options(words: list[str], known: dict[str, bool]) -> dict[str, str]:
    """The options among `words`, with their values where `known` says that they have one; empty when they are wrong."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if name not in known or (known[name] and not rest):
            return {}
        found[name] = rest.pop(0) if known[name] else ""
    return found if "--host" in found and found.get("--port", "").isdigit() else {}


def _endpoint(options: dict[str, str]) -> Endpoint:
    return Endpoint(options["--host"], int(options["--port"]), https="--https" in options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
