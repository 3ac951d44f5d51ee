"""The evidence of one death, taken from the machine where it happened: judged alike elsewhere, and without secrets."""

import json

import pytest
import zstandard

from tests.e2e import network
from tests.e2e.inquest import API, Inquest, Server

pytestmark = pytest.mark.e2e

TOKEN = "hf_" + "Qw7" * 11
KEY = "sk-proj-" + "b9G_" * 8
QUESTION = "what nobody else may read"

SPEC = f"""
model_path = "/var/lib/inquest/models/tiny"
port = 30104
python = "/usr/bin/python3"

[limits]
restart = "no"

[env]
PYTHONPATH = "/opt/standin"
HF_TOKEN = "{TOKEN}"
STANDIN_DEATH = "replay /opt/recordings/with-secrets.txt"
"""
RECORDING = f"""\
main|[{{now}}] Receive: obj=GenerateReqInput(rid='1', text='{QUESTION}')
main|[{{now}}] HTTP Request: POST https://hub.example.org/api headers={{'Authorization': 'Bearer {TOKEN}'}}
scheduler|[{{now}}] Scheduler hit an exception: Traceback (most recent call last):
scheduler|  File "/srv/serving/sglang/srt/managers/scheduler.py", line 4921, in run_scheduler_process
scheduler|    scheduler.event_loop_overlap()
scheduler|RuntimeError: the tool server refused api_key='{KEY}'
scheduler|
main|[{{now}}] Received sigquit from a child process. It usually means the child failed.
main|[{{now}}] kill_process_tree called: parent_pid={{main}}, include_parent=True, pid={{main}}
main!SIGKILL
"""


def test_the_evidence_of_a_death_is_judged_alike_and_holds_no_secret(
    inquest: Inquest, server: Server, standin: None
) -> None:
    machine = inquest.machine
    (machine.root / "opt/recordings/with-secrets.txt").write_text(RECORDING)
    server.put_spec(SPEC)
    run = server.serving()
    server.post_deadly("/die", {})
    crash = inquest.crash_of(run)
    assert (crash["cause"], crash["strength"]) == ("python-exception", "confirmed")
    assert QUESTION in server.journal(), "the journal itself has it"

    answer = network.request(machine.leader, "GET", f"{API}/crashes/{crash['id']}/evidence.tar.zst", timeout=60.0)
    assert answer.headers["content-type"] == "application/zstd"
    (machine.root / "root/evidence.tar.zst").write_bytes(answer.content)

    analyzed = machine.run("inquest", "analyze", "--format", "json", "/root/evidence.tar.zst").stdout
    [again] = json.loads(analyzed)["crashes"]
    judged = ("unit", "invocation_id", "cause", "strength", "subclass", "phase", "summary", "fingerprint")
    assert {name: again[name] for name in judged} == {name: crash[name] for name in judged}

    unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(answer.content).decode()
    assert "Scheduler hit an exception" in unpacked
    for secret in (TOKEN, KEY, QUESTION):
        assert secret not in unpacked
