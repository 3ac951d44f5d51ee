"""A server asked from outside whether it lives: one token through scheduler and detokenizer, by HTTP."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_ANSWER", "REFUSED", "Endpoint", "health"]

NO_ANSWER = "nothing"
REFUSED = "ConnectionRefusedError"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server listens, as its spec says."""

    host: str
    port: int
    https: bool = False

    @property
    def reachable_host(self) -> str:
        """The host to call: a wildcard address is answered on the loopback address of its family."""
        import ipaddress

        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host
        if not address.is_unspecified:
            return self.host
        return "127.0.0.1" if address.version == 4 else "::1"


def health(endpoint: Endpoint, seconds: float) -> int | str:
    """The status of ``/health_generate``, or why there is none within `seconds`. The path needs no API key.

    SGLang queues a request of one token only when it is idle, and is content with any other output when it is not.
    """
    import http.client  # with ssl it takes longer to import than the rest of a step: only whoever asks pays

    host, port = endpoint.reachable_host, endpoint.port
    if endpoint.https:
        import ssl

        # It asks whether the server lives, on this machine; whose certificate it has does not matter.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=seconds, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", "/health_generate")
        return connection.getresponse().status
    except TimeoutError:
        return NO_ANSWER
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
