import re
import tomllib
from pathlib import Path

import pytest

from forensics.errors import SettingsError
from forensics.settings import Alerts, Api, Retention, Settings, load
from forensics.settings.alerts import Alertmanager, Apprise, Command, Otlp, Route, Webhook


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inquestd.toml"


def problems(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(path)
    return error.value.message


def test_a_missing_file_means_the_defaults(path: Path) -> None:
    settings = load(path)
    assert settings == Settings()
    assert settings.units == ("sglang-*.service",)
    assert (settings.api.host, settings.api.port, settings.api.socket) == ("127.0.0.1", 8642, None)
    assert settings.link == "http://127.0.0.1:8642"


def test_an_empty_file_means_the_defaults(path: Path) -> None:
    path.write_text("")
    assert load(path) == Settings()


SHIPPED = Path(__file__).parents[2] / "deploy/rootfs/etc/inquest/inquestd.toml"


def test_the_shipped_file_is_the_defaults() -> None:
    assert load(SHIPPED) == Settings()


def test_the_shipped_file_names_every_setting_with_its_default(path: Path) -> None:
    """Its commented lines, made lines; examples of what has no default apart."""
    lines = SHIPPED.read_text().splitlines()
    path.write_text("\n".join(line.removeprefix("#") if re.match(r"#[a-z_\[]", line) else line for line in lines))
    written = load(path)
    tables = {
        "webhooks": Webhook,
        "alertmanagers": Alertmanager,
        "otlp": Otlp,
        "apprise": Apprise,
        "commands": Command,
        "routes": Route,
    }
    examples = {"link": None, **dict.fromkeys(tables, ())}
    assert (
        written.model_copy(
            update={
                "alerts": written.alerts.model_copy(update=examples),
                "api": written.api.model_copy(update={"socket": None, "token": None}),
            }
        )
        == Settings()
    )
    named = tomllib.loads(path.read_text())
    assert set(Settings.model_fields) - set(named) == {"state_dir"}, "systemd gives the state directory"
    assert set(named["api"]) == set(Api.model_fields)
    assert set(named["retention"]) == set(Retention.model_fields)
    assert set(named["alerts"]) == set(Alerts.model_fields)
    for name, table in tables.items():
        [example] = named["alerts"][name]
        assert set(example) == set(table.model_fields)


def test_everything_can_be_set(path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    path.write_text(f"""
        units = ["sglang-*.service", "llm.service"]
        state_dir = "/srv/inquest"
        settle_seconds = 1
        sample_interval_seconds = 0.5
        lookback_seconds = 0
        log_level = "debug"
        [api]
        host = "::1"
        port = 9000
        socket = "/run/inquestd/api.sock"
        [alerts]
        link = "https://gpu7.example/inquest/"
        [[alerts.webhooks]]
        name = "pager"
        url = "https://pager.example/hook"
        timeout_seconds = 3
        headers.Authorization.file = "{tmp_path}/token"
        [[alerts.webhooks]]
        name = "chat"
        url.credential = "chat-url"
        [retention]
        max_crashes = 10
        max_age_days = 1
    """)
    settings = load(path)
    assert settings.units == ("sglang-*.service", "llm.service")
    assert settings.state_dir == Path("/srv/inquest")
    assert settings.local_address == "http://[::1]:9000"
    assert settings.link == "https://gpu7.example/inquest"
    pager, chat = settings.alerts.webhooks
    assert pager.headers["Authorization"].read() == "s3cret"
    assert pager.timeout_seconds == 3
    assert not isinstance(chat.url, str)
    assert settings.retention.max_age_days == 1


def test_the_state_directory_is_what_systemd_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/private/inquestd")
    assert load(path).state_dir == Path("/var/lib/private/inquestd")
    monkeypatch.delenv("STATE_DIRECTORY")
    assert load(path).state_dir == Path("/var/lib/inquestd")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unitz = []", ["unitz", "unknown key", "did you mean `units`", "settle_seconds"]),
        ("[api]\nprot = 1", ["api.prot", "did you mean `port`", "host, port, socket"]),
        ("[api]\nport = 70000", ["api.port", "less than or equal to 65535", "it is 70000"]),
        ("[api]\nport = 'x'", ["api.port", "valid integer", "it is 'x'"]),
        ("[api]\nhost = '0.0.0.0'", ["api", "host 0.0.0.0 is not a loopback address", "there is no token"]),
        ("[api]\nhost = '::'", ["api", "host :: is not a loopback address"]),
        ("[api]\ncors_origins = ['https://a.example/x']", ["api.cors_origins[0]", "not an origin"]),
        ("[api]\ntoken = 'abc'", ["api.token", "a secret is never written here"]),
        ("[api]\nhost = 'gpu7.example'", ["api.host", "not an IP address", "127.0.0.1"]),
        ("units = []", ["units", "at least 1 item"]),
        ("units = ['sglang-*']", ["units[0]", "it is 'sglang-*'"]),
        ("settle_seconds = -1", ["settle_seconds", "greater than or equal to 0"]),
        ("log_level = 'loud'", ["log_level", "'debug', 'info', 'warning' or 'error'"]),
        ("[[alerts.webhooks]]\nname = 'a'", ["alerts.webhooks[0].url", "field required"]),
        ("[[alerts.webhooks]]\nname = 'a'\nurl = 'ftp://x'", ["alerts.webhooks[0].url", "http://host/"]),
        ("[[alerts.webhooks]]\nname = 'a'\nurl.fle = '/x'", ["alerts.webhooks[0].url.fle", "did you mean `file`"]),
        ("[[alerts.webhooks]]\nname = 'a'\nurl = {}", ["alerts.webhooks[0].url", "give either `file` or `credential`"]),
        ("[[alerts.webhooks]]\nname = 'journal'\nurl = 'http://x'", ["alerts", "'journal' is taken"]),
        ("[[alerts.commands]]\nname = 'a'\nargv = ['siren']", ["alerts.commands[0].argv", "with its whole path"]),
        ("[[alerts.commands]]\nname = 'a'\nargv = []", ["alerts.commands[0].argv", "at least 1 item"]),
        ("[[alerts.apprise]]\nname = 'a'\nurl = 'ntfys://x'", ["alerts.apprise[0].url", "never written here"]),
        ("[[alerts.alertmanager]]\nname = 'a'", ["alerts.alertmanager", "did you mean `alertmanagers`"]),
        ("[[alerts.routes]]\ncause = ['hang']", ["alerts.routes[0].cause", "did you mean `causes`"]),
        ("[[alerts.routes]]\ncauses = ['kernel-om']", ["alerts.routes[0].causes", "did you mean 'kernel-oom'"]),
        ("[[alerts.routes]]\nfamilies = ['oom']", ["alerts.routes[0].families[0]", "'kernel-oom'", "it is 'oom'"]),
        ("[[alerts.routes]]\nto = ['mial']", ["alerts: routes[0].to", "no channel 'mial'", "there is no channel"]),
        (
            "[[alerts.routes]]\nto = ['mial']\n[[alerts.apprise]]\nname = 'mail'\nurl.file = '/x'",
            ["routes[0].to", "did you mean 'mail'"],
        ),
        ("[[alerts.routes]]\nto = ['journal']", ["routes[0].to", "the journal is told everything"]),
        ("[alerts]\ngather_seconds = [0]", ["alerts.gather_seconds[0]", "greater than 0"]),
        ("[retention]\nmax_crashes = 0", ["retention.max_crashes", "greater than or equal to 1"]),
    ],
)
def test_a_mistake_is_told_with_file_key_and_what_is_allowed(path: Path, text: str, words: list[str]) -> None:
    message = problems(path, text)
    for word in [str(path), *words]:
        assert word in message


def test_all_mistakes_are_told_at_once(path: Path) -> None:
    message = problems(path, "settle_seconds = 'x'\nunitz = []\n[api]\nport = -1")
    assert [line.split(": ")[1] for line in message.splitlines()] == ["settle_seconds", "api.port", "unitz"]


def test_a_secret_written_inline_is_refused_and_not_repeated(path: Path) -> None:
    message = problems(
        path, "[[alerts.webhooks]]\nname = 'a'\nurl = 'http://x'\nheaders.Authorization = 'Bearer s3cret'"
    )
    assert "alerts.webhooks[0].headers.Authorization: a secret is never written here" in message
    assert "s3cret" not in message


@pytest.mark.parametrize("content", [b"[api", b"\xff\xfe", b"a = 1\na = 2"])
def test_what_is_not_toml_is_told(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SettingsError) as error:
        load(path)
    assert error.value.code == "settings-not-toml"
    assert str(path) in error.value.message


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        load(tmp_path)
    assert error.value.code == "settings-unreadable"


def test_a_credential_is_read_from_where_systemd_puts_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("[[alerts.webhooks]]\nname = 'a'\nurl.credential = 'chat-url'")
    url = load(path).alerts.webhooks[0].url
    assert not isinstance(url, str)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(SettingsError) as error:
        url.read()
    assert "chat-url" in error.value.message
    (tmp_path / "chat-url").write_text("https://chat.example/x\n")
    assert url.read() == "https://chat.example/x"


def test_settings_do_not_change_later() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().settle_seconds = 1.0  # type: ignore[misc]


def test_two_channels_of_different_kinds_may_not_have_one_name(path: Path) -> None:
    message = problems(
        path,
        "[[alerts.webhooks]]\nname = 'a'\nurl = 'http://x'\n[[alerts.commands]]\nname = 'a'\nargv = ['/bin/true']",
    )
    assert "alerts: the channel name 'a' is taken" in message


def test_what_may_be_a_secret_is_not_repeated(path: Path) -> None:
    message = problems(path, "[[alerts.apprise]]\nname = 'a'\nurl = 'mailto://me:s3cret@example.org'")
    assert "alerts.apprise[0].url: a secret is never written here" in message
    assert "s3cret" not in message
