"""deploy/up: install Inquest and start it with a server.

    sudo ./deploy/up                 with a demonstration: real SGLang on the CPU, a tiny model
    sudo ./deploy/up SPEC.toml       with your own server; its unit is called after the file

With systemd as PID 1 it installs on this system.  Without, as in a container, it boots a throw-away
systemd machine and installs there; the server's and the API's ports are the host's.  A second run is
quick.  ./deploy/down takes it away.
"""

import os
import sys
import tomllib
from pathlib import Path

from deploy import environment, host, nspawn, packages
from deploy.progress import DeployError, say, step

MACHINE = "inquest"
_NAME = "INQUEST_MACHINE"  # set where this script runs inside a throw-away machine


def main(arguments: list[str]) -> int:
    """Exit status 0 when the daemon watches and the server answers."""
    if arguments and arguments[0] in ("-h", "--help"):
        say(__doc__ or "")
        return 0
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        raise DeployError(f"too much on the command line: {' '.join(arguments)}", todo="./deploy/up [SPEC.toml]")
    spec = Path(arguments[0]).resolve() if arguments else None
    if spec is not None and (spec.suffix != ".toml" or not spec.is_file()):
        raise DeployError(f"{spec} is not a .toml file", todo="see deploy/rootfs/etc/inquest/servers/demo.toml")
    if os.geteuid() != 0:
        raise DeployError("installing needs root", todo="sudo ./deploy/up")
    environment.become_installer()
    host.build(spec)
    if Path("/run/systemd/system").is_dir():
        unit = host.install(spec)
        host.start(unit)
        _tell(unit)
    else:
        _up_in_machine(spec)
    return 0


def _up_in_machine(spec: Path | None) -> None:
    """Boot the throw-away machine where it does not run yet, and run this script inside."""
    say("systemd is not PID 1 here: installing in a throw-away machine that shares this host's ports")
    with step("packages for the machine"):
        packages.ensure(*packages.FOR_A_MACHINE)
    machine = nspawn.find(MACHINE)
    if machine is None:
        with step("boot"):
            machine = nspawn.boot(MACHINE, bind_ro=[environment.ROOT], own=[environment.VENV])
    arguments = []
    if spec is not None:
        copy = Path("/root") / spec.name
        (machine.root / copy.relative_to("/")).write_bytes(spec.read_bytes())
        arguments = [copy]
    # Inside, PID 1 is systemd and everything slow is done: the lower layer holds what was just built.
    code = machine.stream(environment.ROOT / "deploy" / "up", *arguments, env={_NAME: MACHINE})
    if code != 0:
        raise DeployError("installing in the machine failed, see above", todo=f"./deploy/machine shell {MACHINE}")


def _tell(unit: str) -> None:
    prefix = f"./deploy/machine exec {os.environ[_NAME]} " if _NAME in os.environ else ""
    server = unit.removeprefix("sglang-").removesuffix(".service")
    spec = tomllib.loads((host.SERVERS / f"{server}.toml").read_text())
    port = spec.get("port", 30000)
    model = spec.get("served_model_name", spec["model_path"])
    say(f"""
{unit} serves on port {port}, and inquestd watches it. Try:

  curl -s http://127.0.0.1:{port}/v1/completions -H 'Content-Type: application/json' \\
       -d '{{"model": "{model}", "prompt": "the quick brown fox", "max_tokens": 16}}'
  {prefix}systemctl kill --kill-whom=main --signal=KILL {unit}
  curl -s http://127.0.0.1:8642/crashes
  {prefix}inquest show
  {prefix}inquest doctor        what Inquest cannot see on this machine, and the remedy
  {prefix}inquest drill         units that die on purpose, and whether the verdicts are right

Take it away again: ./deploy/down""")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DeployError as error:
        error.exit("deploy/up")
