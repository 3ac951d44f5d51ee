"""`python -m forensics.cli.manual FOLDER`."""

import sys
from pathlib import Path

from forensics.cli.manual import pages

for place, source in pages().items():
    path = Path(sys.argv[1], place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
