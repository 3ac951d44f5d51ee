"""deploy/down: take Inquest away.

sudo ./deploy/down            stop it and remove it; specs, state and what took long to build stay
sudo ./deploy/down --purge    these too
"""

import os
import shutil
import sys
from pathlib import Path

from deploy import host, nspawn
from deploy.progress import DeployError, say, step
from deploy.up import MACHINE


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--purge"]):
        say(__doc__ or "")
        return 2
    if os.geteuid() != 0:
        raise DeployError("removing needs root", todo="sudo ./deploy/down")
    purge = arguments == ["--purge"]
    if Path("/run/systemd/system").is_dir():
        host.remove(purge=purge)
        return 0
    with step("the throw-away machine"):
        if not nspawn.down(MACHINE):
            say("    there was none")
    if purge:
        with step("environments and models"):
            for folder in host.CACHES:
                shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DeployError as error:
        error.exit("deploy/down")
