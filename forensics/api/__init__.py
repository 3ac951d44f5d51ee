"""What people and programs read over HTTP. It shows what the store has; it computes no verdict and changes nothing."""

from forensics.api.access import Access
from forensics.api.app import create_app
from forensics.api.serving import Serving, serve
from forensics.api.shapes import Health, SourceHealth

__all__ = ["Access", "Health", "Serving", "SourceHealth", "create_app", "serve"]
