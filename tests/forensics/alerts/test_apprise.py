"""Apprise, with the services that can be had here: mail to a real SMTP server, JSON to a receiver."""

import email
import socket
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from email.policy import default

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from forensics.alerts.apprise import AppriseSink
from forensics.alerts.sink import Refused
from forensics.errors import InquestError, SettingsError
from tests.forensics.alerts.deliveries import LINK, delivery
from tests.forensics.alerts.test_words import hostile
from tests.forensics.factories import crash
from tests.forensics.receiver import Receiver, receiving

# Apprise 2.3 makes up for a module that Python 3.13 has no more, by importing it while it is there.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


class Mailbox:
    """What arrives; the next mail is refused with `refusal` if there is one."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refusal = ""

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refusal:
            return self.refusal
        assert isinstance(envelope.content, bytes)
        self.mails.append(email.message_from_bytes(envelope.content, policy=default))
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, str]]:
    """The mailbox and the URL that leads to it."""
    box = Mailbox()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, f"mailto://127.0.0.1:{port}?from=inquest@example.org&to=on-call@example.org"
    controller.stop()


def sink(url: str) -> AppriseSink:
    return AppriseSink("mail", url, host="gpu7", link=LINK)


def parts(mail: Message) -> dict[str, str]:
    return {
        part.get_content_type(): part.get_payload(decode=True).decode()  # type: ignore[union-attr]
        for part in mail.walk()
        if not part.is_multipart()
    }


def test_a_death_by_mail(mailbox: tuple[Mailbox, str]) -> None:
    box, url = mailbox
    assert sink(url).send(delivery()) == "Apprise has sent it"
    [mail] = box.mails
    assert mail["Subject"] == "demo on gpu7: python-exception"
    assert mail["To"] == "on-call@example.org"
    html = parts(mail)["text/html"]
    assert "<b>demo on gpu7 died of python-exception (confirmed): The scheduler died of RuntimeError" in html
    assert f'<a href="{LINK}/crashes/000000000001">' in html


def test_hostile_lines_are_text_in_a_mail(mailbox: tuple[Mailbox, str]) -> None:
    box, url = mailbox
    sink(url).send(delivery(of=hostile()))
    html = parts(box.mails[0])["text/html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script" not in html


def test_a_mail_that_is_refused_is_no_delivery_and_tells_no_secret(mailbox: tuple[Mailbox, str]) -> None:
    box, url = mailbox
    box.refusal = "554 no such list, hunter2secret"
    with pytest.raises(InquestError) as error:
        sink(f"{url}&x=hunter2secret").send(delivery())
    assert "554" in error.value.message
    assert "no such list, [removed]" in error.value.message
    box.refusal = ""
    sink(url).send(delivery())
    assert len(box.mails) == 1


def test_a_server_that_takes_no_password_is_no_delivery_and_the_password_is_not_told(
    mailbox: tuple[Mailbox, str],
) -> None:
    _, url = mailbox
    with pytest.raises(InquestError) as error:
        sink(url.replace("://", "://inquest:hunter2secret@")).send(delivery())
    assert "AUTH extension not supported" in error.value.message
    assert "hunter2secret" not in error.value.message


def test_a_receiver_that_is_not_there_is_no_delivery() -> None:
    with receiving(Receiver()) as receiver:
        gone = receiver.url.replace("http://", "json://")
    with pytest.raises(InquestError, match="onnection"):
        sink(gone).send(delivery())


@pytest.mark.parametrize(("status", "refused"), [(413, True), (503, False)])
def test_a_service_that_refuses_the_message_is_told_from_one_that_is_down(status: int, refused: bool) -> None:
    with receiving(Receiver(answers=[status])) as receiver, pytest.raises(InquestError) as error:
        sink(receiver.url.replace("http://", "json://")).send(delivery())
    assert isinstance(error.value, Refused) == refused
    assert f"error={status}" in error.value.message


def test_a_service_that_takes_less_gets_less() -> None:
    assert sink("pagerduty://integration@key")._notify[0].overflow_mode == "truncate"
    assert sink("pagerduty://integration@key?overflow=split")._notify[0].overflow_mode == "split"


@pytest.mark.parametrize(
    ("kind", "cause", "type_"),
    [
        ("crash", "kernel-oom", "failure"),
        ("crash", "stop-timeout", "warning"),
        ("folded", "kernel-oom", "warning"),
        ("start-limit", "kernel-oom", "failure"),
        ("recovered", "kernel-oom", "success"),
        ("amended", "kernel-oom", "info"),
    ],
)
def test_a_service_is_told_how_bad_it_is(kind: str, cause: str, type_: str) -> None:
    with receiving(Receiver()) as receiver:
        sink(receiver.url.replace("http://", "json://")).send(delivery(kind, of=crash(1, cause=cause)))
    assert receiver.got[0]["body"]["type"] == type_


@pytest.mark.parametrize(
    ("url", "format_"),
    [
        ("mailto://127.0.0.1?from=a@example.org&to=b@example.org", "html"),
        ("tgram://123456789:abcdefg_hijklmnopqrstuvwxyzabcdefgh/12315544", "html"),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "markdown"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "markdown"),
        ("ntfy://127.0.0.1/topic", "text"),
    ],
)
def test_each_service_gets_the_format_in_which_it_escapes(url: str, format_: str) -> None:
    assert sink(url)._format == format_


FAILS = """
import logging
from forensics.alerts.apprise import AppriseSink
from tests.forensics.alerts.deliveries import LINK, delivery
logging.basicConfig(level="DEBUG")
try:
    AppriseSink("x", "json://me:hunter2secret@127.0.0.1:1/hook", host="gpu7", link=LINK).send(delivery())
except Exception as error:
    print("failed:", error)
"""


def test_the_daemons_log_has_nothing_of_the_url() -> None:
    done = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=60, check=True)
    assert "failed: A Connection error occurred" in done.stdout
    assert "hunter2secret" not in done.stdout + done.stderr


def test_a_url_that_apprise_does_not_know_is_told_without_it() -> None:
    with pytest.raises(SettingsError) as error:
        sink("nonsense://s3cret-token/x")
    assert "'mail': Apprise does not know its URL" in error.value.message
    assert "s3cret-token" not in error.value.message + error.value.hint


def test_without_apprise_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SettingsError) as error:
        sink("ntfy://127.0.0.1/topic")
    assert "pip install 'apprise>=2.3'" in error.value.hint


def test_a_daemon_that_needs_no_apprise_does_not_load_it() -> None:
    script = "import sys, forensics.daemon; sys.exit('apprise' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
