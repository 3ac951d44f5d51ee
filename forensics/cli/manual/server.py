"""inquest-server.toml(5): every key of a server's spec, read off the spec's own model."""

from forensics.cli.manual.roff import Page
from units.keys import DIRECTIVES, keys

SUMMARY = "a server as Inquest runs it under systemd"

MEANINGS = {
    "python": "The interpreter of SGLang's environment.",
    "user": "The user that the server runs as.",
    "group": "The group that the server runs as.",
    "description": "What systemd shows of the unit.",
    "enabled": "Whether it starts with the machine. A generated unit cannot be enabled with systemctl.",
    "environment_file": "A file of variables for secrets, such as HF_TOKEN.",
    "limits.memory_max": "More memory than this, and the kernel kills in this unit alone.",
    "limits.memory_high": "From here on the kernel takes memory back, which slows the server down.",
    "limits.memory_swap_max": "How much swap it may use.",
    "limits.oom_policy": "What systemd does when the kernel has killed one of its processes.",
    "limits.timeout_start": "How long loading and capturing graphs may take.",
    "limits.timeout_stop": "How long running requests may take to finish at a stop.",
    "limits.on_hang": "Whether a server that does not answer is only told, or also restarted.",
    "limits.hang_timeout": "How long it may not answer.",
    "limits.restart": "When systemd starts it again by itself.",
    "limits.restart_sec": "The pause before that.",
    "limits.start_limit_burst": "So many starts within start_limit_interval, and it is given up.",
    "limits.start_limit_interval": "The time within which starts are counted.",
    "limits.limit_core": "The largest core dump that is kept.",
    "limits.limit_nofile": "How many files it may have open.",
    "env": "Environment variables, a table of names and texts.",
    "extra_args": "Options of SGLang that have no key here, as words of the command line.",
}
"""What each key is for that is no option of SGLang. One that is not in here fails a test, and no installation."""


def write(page: Page) -> None:
    """Everything behind the name."""
    page.head("Synopsis")
    page.text("`/etc/inquest/servers/NAME.toml`")
    page.head("Description")
    page.text(
        "One TOML file a server; `sglang-NAME.service` is generated from it at every `systemctl daemon-reload`. A key"
        " is the option of `sglang.launch_server` with the same name, spelled with underscores; in the table"
        " [speculative] with `speculative_` in front of it. What is not given keeps SGLang's own default."
    )
    page.text(
        "A mistake in the file yields a unit whose start fails with the mistake in plain words. `inquest units check`"
        " finds mistakes before, and asks the installed SGLang and the models."
    )
    page.head("Example")
    page.example(
        [
            'model_path = "/models/chat-8b"',
            "port = 30001",
            "",
            "[speculative]",
            'algorithm = "EAGLE3"',
            'draft_model_path = "/models/chat-8b-eagle3"',
            "num_steps = 3",
            "eagle_topk = 1",
            "num_draft_tokens = 4",
            "",
            "[limits]",
            'memory_max = "96G"',
        ]
    )
    page.head("Keys")
    table = ""
    page.sub("At the top")
    for key in keys():
        folder, _, name = key.name.rpartition(".")
        if folder != table:
            table = folder
            page.sub(f"[{folder}]")
        default = f" Default: {key.default}." if key.default not in ("", "must be given") else ""
        must = " It must be given." if key.default == "must be given" else ""
        meaning = f"SGLang's `{key.becomes}`."
        if key.name in DIRECTIVES:
            meaning = f"{MEANINGS.get(key.name, '')} Sets {key.becomes}."
        page.item(name, f"{meaning}{default}{must}")
    page.head("See also")
    page.text("`inquest`(1), `inquestd.service`(8), `systemd.resource-control`(5), `systemd.service`(5)")
