"""What is kept: ended runs with their verdicts, where the daemon had read to, and the alerts that still must go out."""

from forensics.store.delivery import Delivery
from forensics.store.news import Item, News
from forensics.store.outbox import Outbox
from forensics.store.query import Page, Query
from forensics.store.runs import RunPage
from forensics.store.store import Store

__all__ = ["Delivery", "Item", "News", "Outbox", "Page", "Query", "RunPage", "Store"]
