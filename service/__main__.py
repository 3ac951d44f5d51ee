"""``python -m service STEP NAME``: the steps around a server that its unit runs. For people there is ``inquest``.

Each step imports only what it needs: ``remains`` runs while a unit is being taken down.
"""

from __future__ import annotations

import sys

USAGE = """\
usage: python -m service preflight NAME [--digest DIGEST]
       python -m service wait-ready NAME --host HOST --port PORT [--https]
       python -m service remains NAME
"""


def main(argv: list[str]) -> int:
    match argv:
        case ["remains", server]:
            from service import remains

            return remains.main(server)
        case ["wait-ready", _, "--host", host, "--port", port, *https] if port.isdigit():
            from service import ready

            return ready.main(ready.Endpoint(host, int(port), https=https == ["--https"]))
        case ["preflight", server, *digest] if digest[:1] in ([], ["--digest"]):
            from service import preflight

            return preflight.main(server, digest[1] if digest else None)
    sys.stderr.write(USAGE)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
