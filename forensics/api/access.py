"""Who is answered: by the name that the request carries, by the page that it comes from, by its token.

Log lines are not for everybody. A page in a browser here could reach a listener on loopback by a name that its owner
points to 127.0.0.1 (DNS rebinding); such a request carries that name in Host, and a script's its page in Origin.
"""

import base64
import binascii
import hmac
import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forensics.api.problems import problem

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.IGNORECASE | re.ASCII)

PROTECTION = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What may reach the API. `names` are host names beside loopback's; an address in Host is fine when the API listens
    beyond loopback (`open`), since an address cannot be re-bound. `token` None: everybody on this machine. `origins`
    are pages of elsewhere that may read it, as `https://host:port`."""

    names: frozenset[str] = frozenset()
    open: bool = False
    token: str | None = None
    origins: frozenset[str] = frozenset()

    def answers_to(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["name"].lower()
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or self.open

    def admits(self, authorization: str) -> bool:
        """Whether the header has the token: as Bearer, or as the password of Basic, for which browsers ask."""
        if self.token is None:
            return True
        scheme, _, value = authorization.partition(" ")
        given = value.strip()
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), self.token.encode())


LOOPBACK = Access()


class Door:
    """ASGI middleware: 421 for a Host that is not ours, 403 for another page's script, 401 without the token.

    Who comes over the unix socket has passed its file's mode and needs no token.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in PROTECTION.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        await (refusal or self._app)(scope, receive, protected)

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        path, host = scope["path"], headers.get("host", "")
        if not self._access.answers_to(host):
            return problem(
                421,
                "host-not-ours",
                f"this API does not answer to the name {host!r}",
                instance=path,
                hint="It answers to localhost and loopback addresses, and to the `hosts` under [api] in its settings. "
                "A proxy before it can set Host to localhost.",
            )
        origin = headers.get("origin")
        if origin is not None and not _same_origin(origin, host) and origin not in self._access.origins:
            return problem(
                403,
                "foreign-origin",
                f"a script of {origin!r} may not read this API",
                instance=path,
                hint="List it under `cors_origins` of [api] in the settings, if it should.",
            )
        over_socket = scope.get("client") is None
        preflight = scope["method"] == "OPTIONS"
        if not over_socket and not preflight and not self._access.admits(headers.get("authorization", "")):
            refusal = problem(
                401,
                "token-needed",
                "this API needs its token",
                instance=path,
                hint="Send `Authorization: Bearer <token>`; a browser asks for it as a password, with any user name.",
            )
            refusal.headers["WWW-Authenticate"] = 'Basic realm="Inquest", charset="UTF-8"'
            return refusal
        return None


def _same_origin(origin: str, host: str) -> bool:
    """The page is this API's own. A proxy may speak https for us, so the scheme is not compared."""
    _, _, authority = origin.partition("://")
    return authority != "" and authority.lower() == host.lower()
