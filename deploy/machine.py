"""deploy/machine: throw-away systemd machines, for a look inside and for trying things.

    deploy/machine boot NAME [--private-network]
    deploy/machine exec NAME COMMAND…
    deploy/machine shell NAME
    deploy/machine list
    deploy/machine down NAME

A machine is a container over this host's files; nothing that it writes reaches the host, and all of
it is gone when it goes down.  `deploy/up` calls its own `inquest`.
"""

import os
import sys

from deploy import nspawn, packages
from deploy.environment import ROOT
from deploy.progress import DeployError, say


def main(arguments: list[str]) -> int:
    match arguments:
        case ["boot", name, *options] if options in ([], ["--private-network"]):
            packages.ensure(*packages.FOR_A_MACHINE)
            nspawn.boot(name, private_network=bool(options), bind_ro=[ROOT])
            say(f"{name} has booted; ./deploy/machine shell {name}")
        case ["exec", name, *command] if command:
            return _running(name).stream(*command)
        case ["shell", name]:
            return _running(name).stream("/bin/bash", env={"TERM": os.environ.get("TERM", "linux")})
        case ["list"]:
            for name in nspawn.names():
                say(name)
        case ["down", name]:
            if not nspawn.down(name):
                raise DeployError(f"there is no machine {name}", todo="./deploy/machine list")
        case _:
            say(__doc__ or "")
            return 2
    return 0


def _running(name: str) -> nspawn.Machine:
    machine = nspawn.find(name)
    if machine is None:
        raise DeployError(f"there is no machine {name}", todo=f"./deploy/machine boot {name}")
    return machine


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DeployError as error:
        error.exit("deploy/machine")
