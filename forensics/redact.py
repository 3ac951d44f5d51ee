"""Takes secrets and users' words out of a text before it is stored, shown or sent.

What is removed: API keys on a command line, in `server_args=…` or in JSON; Hugging Face, OpenAI-like, GitHub, GitLab,
Slack and AWS tokens and JSON web tokens; Authorization headers; passwords and keys in URLs; and the prompts and
answers that SGLang prints with `--log-requests`. The rest of a line stays as it was, since it is evidence.
"""

import re
from typing import Any

REMOVED = "[removed]"

# Names of secrets. A bare `token` is not among them: `#new-token: 128` and `token usage: 0.93` are figures.
_NAME = (
    r"(?:api[_-]?key|admin[_-]?key|private[_-]?key|secret[_-]?key|access[_-]?key(?:[_-]id)?|client[_-]?secret"
    r"|(?:access|auth|api|bearer|refresh|session|secret|hf|hub|github|gitlab|slack|wandb)[_-]?token"
    r"|password|passwd|passphrase)"
)
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
    (re.compile(rf"(?i)(?P<name>{_NAME}\\?[\"']?\s*[=:]\s*)(?P<value>{_VALUE})"), _value),
    # --name value, '--name', 'value'
    (re.compile(rf"(?i)(?P<name>--[a-z-]*{_NAME}(?:\s+|[\"'],?\s*))(?P<value>(?!-){_VALUE})"), _value),
    (
        re.compile(
            r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?)(?!(?:[a-z]+ +)?\[removed\])((?:[a-z]{3,10} +)?)[^\s\"',;)}\]]+"
        ),
        rf"\1\2{REMOVED}",
    ),
    (re.compile(r"(?i)\b(bearer +)[a-z0-9._~+/=-]{8,}"), rf"\1{REMOVED}"),
    # scheme://user:password@host
    (re.compile(r"(://[^\s/:@\"']{0,256}:)[^\s/@\"']{1,1024}@"), rf"\1{REMOVED}@"),
    # …?token=…&sig=…: the query of a URL
    (re.compile(r"(?i)([?&](?:token|key|sig|signature|auth|secret)=)[^\s&\"'<>\[\]]+"), rf"\1{REMOVED}"),
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

# One search decides for nearly every text that there is nothing to do.
_SUSPICIOUS = re.compile(
    rf"(?i)obj=|{_NAME}|authorization|bearer|://[^\s/]*@|[?&](?:token|key|sig|auth|secret)|hooks\.slack"
    r"|hf_|sk-|gh[pousr]_|github_pat|glpat|xox|a[ks]ia|eyj"
)


def redact(text: str) -> str:
    """The text with every secret replaced by `[removed]`. Doing it twice changes nothing more."""
    if not _SUSPICIOUS.search(text):
        return text
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
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


_NAME_ALONE = re.compile(rf"(?i)[\w-]*{_NAME}")


def _secret(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str) or value in ("", "None", "null"):
        return False
    return _NAME_ALONE.fullmatch(name) is not None
