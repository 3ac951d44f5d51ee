"""Takes secrets and users' words out of a text before it is stored, shown or sent.

What is removed: API keys on a command line, in `server_args=…` or in JSON; Hugging Face, OpenAI-like, GitHub, GitLab,
Slack and AWS tokens and JSON web tokens; Authorization headers; passwords and keys in URLs; and the prompts and
answers that SGLang prints with `--log-requests`. The rest of a line stays as it was, since it is evidence.
"""

import re
from typing import Any

REMOVED = "[removed]"

# Names of secrets; words may be joined by an underscore, a hyphen or nothing. A bare `token` is not among them:
# `#new-token: 128` and `token usage: 0.93` are figures.
_NAMES = (
    *(f"{kind} key" for kind in ("api", "admin", "private", "secret", "access")),
    *(
        f"{kind} token"
        for kind in ("access", "auth", "api", "bearer", "refresh", "session", "secret", "hf", "hub", "github", "gitlab")
    ),
    "client secret",
    "password",
    "passwd",
    "passphrase",
)
_NAME = f"(?:{'|'.join(name.replace(' ', '[_-]?') for name in _NAMES)})"
_VALUE = (
    r"(?:\"(?!\[removed\])(?:\\.|[^\"\\])+|'(?!\[removed\])(?:\\.|[^'\\])+"
    r"|(?!\[removed\]|None\b|null\b)[^\s,;&\"'(){}\]]+)"
)


def _value(match: re.Match[str]) -> str:
    """The name as it was, the value gone, its opening quote kept so that the text still reads as it was written."""
    quote = match["value"][0]
    return match["name"] + (quote if quote in "\"'" else "") + REMOVED


_RULES: tuple[tuple[re.Pattern[str], Any], ...] = (
    # name=value, name='value', "name": "value"
    (re.compile(rf"(?ai)(?P<name>{_NAME}\\?[\"']?\s*[=:]\s*)(?P<value>{_VALUE})"), _value),
    # --name value, '--name', 'value'
    (re.compile(rf"(?ai)(?P<name>--[a-z-]*{_NAME}(?:\s+|[\"'],?\s*))(?P<value>(?!-){_VALUE})"), _value),
    (
        re.compile(
            r"(?ai)(authorization[\"']?\s*[:=]\s*[\"']?)(?!(?:[a-z]+ +)?\[removed\])((?:[a-z]{3,10} +)?)[^\s\"',;)}\]]+"
        ),
        rf"\1\2{REMOVED}",
    ),
    (re.compile(r"(?ai)\b(bearer +)[a-z0-9._~+/=-]{8,}"), rf"\1{REMOVED}"),
    # scheme://user:password@host
    (re.compile(r"(://[^\s/:@\"']{0,256}:)[^\s/@\"']{1,1024}@"), rf"\1{REMOVED}@"),
    # …?token=…&sig=…: the query of a URL
    (re.compile(r"(?ai)([?&](?:token|key|sig|signature|auth|secret)=)[^\s&\"'<>\[\]]+"), rf"\1{REMOVED}"),
    (re.compile(r"(hooks\.slack\.com/(?:services|workflows)/)[\w/-]+"), rf"\1{REMOVED}"),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
            r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}"
            r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
        ),
        REMOVED,
    ),
    # `Receive: obj=GenerateReqInput(…)`, `Finish: obj=…, out={…}`: all that follows is the user's. Last, since it keeps
    # the type's name, which must not be what another rule takes.
    (re.compile(r"((?:Receive(?: \w+)?|Finish): obj=\w*)[\s\S]*"), rf"\1({REMOVED})"),
)

# Every text that a rule changes has one of these in it, in some case; nearly all others have none.
_SIGNS = (
    *(name.replace(" ", joint) for name in _NAMES if " token" in name for joint in ("_", "-", "")),
    *("key", "secret", "passw", "passphrase", "obj=", "authorization", "bearer", "@", "hooks.slack", "hf_", "sk-"),
    *("token=", "auth=", "sig=", "signature=", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat", "glpat", "xox"),
    *("akia", "asia", "eyj"),
)


def harmless(text: str) -> bool:
    """Whether `redact` would leave the text as it is, for certain. Also right for text that is escaped as JSON."""
    text = text.lower()
    for sign in _SIGNS:  # noqa: SIM110 - a loop is three times as fast as any() here, and this is where time goes
        if sign in text:
            return False
    return True


def redact(text: str) -> str:
    """The text with every secret replaced by `[removed]`. Doing it twice changes nothing more."""
    if harmless(text):
        return text
    # What one rule leaves can be what another takes; it settles at once, but for text made to be awkward.
    for _ in range(8):
        before = text
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        if text == before:
            break
    return text


def redact_json(data: Any) -> Any:
    """JSON-ready data with `redact` done to every string in it, names of members apart.

    A pair `[name, value]` or a member whose name alone speaks of a secret (`("api_key", "…")`, as parsed from
    `server_args`) loses its value too.
    """
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, dict):
        return {key: REMOVED if _secret(key, value) else redact_json(value) for key, value in data.items()}
    if isinstance(data, list):
        if len(data) == 2 and _secret(data[0], data[1]):
            return [data[0], REMOVED]
        return [redact_json(item) for item in data]
    return data


_NAME_ALONE = re.compile(rf"(?ai)[\w-]*{_NAME}")


def _secret(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str) or value in ("", "None", "null"):
        return False
    return _NAME_ALONE.fullmatch(name) is not None
