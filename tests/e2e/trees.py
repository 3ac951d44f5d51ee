"""Trees of Debian 12 and Ubuntu 24.04 made from nothing by mmdebstrap, which knows their mirrors."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.progress import DeployError, run
from tests.e2e import cache

_RECIPE = "1"  # to be raised when the way a tree is made changes
_KEYS = Path(__file__).resolve().parent / "keys"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A release as mmdebstrap knows it."""

    name: str
    suite: str
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


DEBIAN = Distribution("Debian 12", "bookworm")
UBUNTU = Distribution(
    "Ubuntu 24.04",
    "noble",
    # Debian 12 has no package of Ubuntu's keys. The installers of Ubuntu enable universe.
    options=(f"--keyring={_KEYS / 'ubuntu-archive-2018.asc'}", "--components=main,universe"),
    # There apt is of priority `important`, which a minimal tree leaves out.
    packages=("apt",),
)

# apt's and its methods' own words for a mirror that is not there, not for one whose answer is wrong.
_UNREACHABLE = re.compile(
    r"Could not (?:resolve|connect)|Cannot initiate the connection|Unable to connect|Connection (?:failed|refused|"
    r"timed out)|Temporary failure resolving|Network is unreachable|403 +Forbidden"
)


class Unreachable(Exception):
    """The archive of a distribution cannot be reached from here."""


def tree(distribution: Distribution, kind: str, packages: Sequence[str]) -> Path:
    """A minimal tree with these packages besides; not to be written to."""
    included = [*distribution.packages, *packages]
    digest = hashlib.sha256(" ".join([_RECIPE, distribution.suite, *included]).encode()).hexdigest()

    def make(folder: Path) -> None:
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(included)}",
                '--aptopt=Acquire::Languages "none"',
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                *distribution.options,
                distribution.suite,
                folder / "tree",
            ]
        )

    try:
        return cache.made(f"{distribution.suite}-{kind}", digest, make) / "tree"
    except DeployError as error:
        words = _UNREACHABLE.search(error.problem)
        if words is None:
            raise
        raise Unreachable(f"{distribution.name}'s archive cannot be reached from here ({words[0]})") from error
