"""Which process of SGLang's a pid is, by what it says in a saved text: names and command lines are not in it. Pure."""

import re
from dataclasses import dataclass, field

_AT = r"\[\d{4}-\d\d-\d\d [\d:.]{8,12}"
_SCHEDULER = re.compile(
    rf"{_AT}(?:(?: [A-Z_]+\d+)+\] |\] (?:(?:Prefill|Decode) batch|(?:Scheduler|TpModelWorkerClient) hit an exception"
    r"|Load weight (?:begin|end)\.|Memory pool end\.|KV Cache is allocated|max_total_num_tokens=))"
)
_DETOKENIZER = re.compile(rf"{_AT}\] DetokenizerManager hit an exception")
_MAIN = re.compile(
    rf"{_AT}\] (?:server_args=|INFO: +(?:Started server process|Uvicorn running|\S+:\d+ - \")|The server is fired up"
    r"|SIG(?:QUIT|TERM) received|Received sigquit from|Subprocess \w+ \(pid=|kill_process_tree called"
    r"|Gracefully exiting)"
)
_ROLES = (("scheduler", _SCHEDULER), ("detokenizer", _DETOKENIZER), ("main", _MAIN))
_MOST_PIDS = 65_536


@dataclass(slots=True)
class Speakers:
    """Gathered in a first look over the file. A pid that speaks as several of them passes on what others write."""

    _heard: dict[int, set[str]] = field(default_factory=dict)
    _main: bool = False

    def hear(self, pid: int | None, message: str) -> None:
        if pid is None or not message.startswith("["):
            return
        role = next((name for name, pattern in _ROLES if pattern.match(message)), None)
        if role is not None and (pid in self._heard or len(self._heard) < _MOST_PIDS):
            self._heard.setdefault(pid, set()).add(role)
            self._main = self._main or role == "main"

    def role(self, pid: int | None) -> str:
        """`main`, `scheduler`, `detokenizer`, or `child` for another where main is known; empty where the text does not
        tell."""
        roles = self._heard.get(pid, set()) if pid is not None else set()
        if len(roles) == 1:
            return next(iter(roles))
        return "child" if pid is not None and not roles and self._main else ""
