"""The command `inquest`. Exit status: 0 done; 1 it could not be done, as said; 2 the command line or a settings file
is wrong."""

import sys

from forensics.errors import InputError, InquestError, SettingsError


def main() -> None:
    from forensics.cli import build, meant

    try:
        build(meant(sys.argv[1:]))(prog_name="inquest")
    except InquestError as error:
        sys.stderr.write(f"inquest: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"{error.hint}\n")
        sys.exit(2 if isinstance(error, SettingsError | InputError) else 1)


if __name__ == "__main__":
    main()
