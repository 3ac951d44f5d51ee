"""A process to be killed: saves deaths and sends them, as a daemon does.

`python -m tests.forensics.alerts.sending FILE URL DEATHS [--until-all-arrived]`: takes up where the store's last death
is. Each death is printed once it is saved.
"""

import os
import sys
import time
from pathlib import Path

from forensics.alerts import Courier, courier
from forensics.alerts.post import Poster
from forensics.alerts.webhook import WebhookSink
from forensics.store import Query, Store
from tests.forensics.channels import everybody
from tests.forensics.factories import crash


def main() -> None:
    path, url, deaths, *options = sys.argv[1:]
    courier.back_off_seconds = lambda attempts: 0.02  # type: ignore[assignment]
    store = Store(Path(path), everybody("pager"))
    poster = Poster(url, timeout_seconds=5, headers={})
    running = Courier(store.outbox, [WebhookSink("pager", poster, host="gpu7", link="http://x")])
    store.news.listen(running.wake)
    newest = store.crashes(Query(limit=1)).crashes
    saved = int(newest[0]["id"], 16) if newest else 0
    for number in range(saved + 1, int(deaths) + 1):
        store.save(crash(number, unit=f"sglang-{'ab'[number % 2]}.service"))
        print(number, flush=True)
        time.sleep(0.01)
    os.close(1)  # whoever reads learns that there is no more
    while options and store.outbox.states()["pager"].get("waiting", 0):
        time.sleep(0.01)
    if not options:
        time.sleep(60)


if __name__ == "__main__":
    main()
