import json
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.redact import harmless, redact, redact_json

TOKEN = "hf_" + "Zk9" * 11
KEY = "sk-proj-" + "a8F_" * 8

SECRETS = [
    ("server_args=ServerArgs(model_path='m', api_key='s3cret word', tp_size=1)", "s3cret word"),
    ("server_args={'model_path': 'm', 'api_key': 's3cret', 'admin_api_key': 's4cret'}", "s4cret"),
    ('{"api_key": "s3\\"cret", "port": 30000}', "cret"),
    ("python -m sglang.launch_server --api-key s3cret --port 30000", "s3cret"),
    ("python -m sglang.launch_server --admin-api-key=s3cret --port 30000", "s3cret"),
    ("argv: ['launch_server', '--api-key', 's3cret', '--port', '30000']", "s3cret"),
    ("OPENAI_API_KEY=s3cret HF_HOME=/models", "s3cret"),
    ("export HF_TOKEN='s3cret'", "s3cret"),
    ("HUGGING_FACE_HUB_TOKEN: s3cret", "s3cret"),
    (f"401 Client Error: token {TOKEN} is not valid", TOKEN),
    (f"incorrect key provided: {KEY}.", KEY),
    ("git clone failed: ghp_" + "b7Q" * 12, "b7Qb7Q"),
    ("aws: AKIAABCDEFGHIJKLMNOP is not allowed", "AKIAABCD"),
    ("headers={'Authorization': 'Bearer s3cret.s3cret', 'Accept': '*/*'}", "s3cret"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("authorization: s3cret", "s3cret"),
    ("sent Bearer abcdef123456", "abcdef123456"),
    ("x-api-key: s3cret", "s3cret"),
    ("connecting to postgres://inquest:s3cret@db.example/x", "s3cret"),
    ("GET https://h.example/v1?model=m&token=s3cret&n=1", "s3cret"),
    ("https://hooks.slack.com/services/T000/B000/XXXX1234", "XXXX1234"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIi"),
    ("ssl_keyfile_password='s3cret'", "s3cret"),
    ("Receive: obj=GenerateReqInput(rid='1', text='my private question')", "private"),
    ("Receive OpenAI: obj=ChatCompletionRequest(messages=[{'content': 'private'}])", "private"),
    ("Finish: obj=GenerateReqInput(text='q'), out={'text': 'a private answer'}", "private"),
    ("Receive: obj=GenerateReqInput(text='first line\nsecond private line')", "private"),
]

EVIDENCE = [
    "Decode batch. #running-req: 3, #token: 812, token usage: 0.93, accept len: 2.71, gen throughput (token/s): 61.2",
    "Prefill batch. #new-seq: 1, #new-token: 128, #cached-token: 0, token usage: 0.00",
    "max_total_num_tokens=4096, chunked_prefill_size=2048, tokenizer_path='m', max_new_tokens: 16",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB",
    "api_key=None, admin_api_key=None",
    "{'api_key': '', 'admin_api_key': None}",
    "inquest-demo.service: Main process exited, code=killed, status=9/KILL",
    "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/sglang.slice/sglang-demo.service,task=python3,pid=42,uid=0",
    'File "/srv/x/tokenizer_manager.py", line 12, in auto_create_handle_loop',
    "KeyError: 'password_field'",
    "http://127.0.0.1:30000/health",
    "Unauthorized: missing bearer",
    "skipped: task-risk-free, desk-top",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_removed(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "[removed]" in redact(text)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_twice_is_once(text: str, secret: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("text", EVIDENCE)
def test_evidence_stays_as_it_was(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    assert redact("ServerArgs(api_key='a', port=30000)") == "ServerArgs(api_key='[removed]', port=30000)"
    assert redact("x --api-key a --port 1") == "x --api-key [removed] --port 1"
    assert redact("[tp0] Receive: obj=GenerateReqInput(text='q')") == "[tp0] Receive: obj=GenerateReqInput([removed])"


_PIECES = st.sampled_from(
    ["api_key", "=", "'", '"', "[removed]", " ", "--api-key", "Bearer ", "Authorization:", "://u:", "@", "?token=",
     "a1", "\\", "]", "Receive: obj=", "(", "\n", "None", "hf_" + "x" * 20, ":", ",", "-", "password", "Finish: obj=G"]
)  # fmt: skip


@given(st.one_of(st.text(st.characters(exclude_categories=())), st.lists(_PIECES, max_size=14).map("".join)))
def test_twice_is_once_whatever_the_text(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.one_of(st.text(st.characters(exclude_categories=())), st.lists(_PIECES, max_size=14).map("".join)))
def test_what_is_called_harmless_is(text: str) -> None:
    """Else a secret would slip through before any rule looks; as it is, and as it stands in JSON."""
    if redact(text) != text:
        assert not harmless(text)
        assert not harmless(json.dumps(text))


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_no_secret_is_called_harmless(text: str, secret: str) -> None:
    assert not harmless(json.dumps(text.swapcase()))


@given(
    st.text(string.ascii_letters + string.digits + "+/-_ .:@", min_size=1, max_size=40).filter(
        lambda key: key != "None"
    )
)
def test_an_api_key_is_removed_whatever_it_is(key: str) -> None:
    args = f"server_args=ServerArgs(model_path='/m', api_key='{key}', port=30000)"
    assert redact(args) == "server_args=ServerArgs(model_path='/m', api_key='[removed]', port=30000)"


def test_names_and_values_apart() -> None:
    data = {
        "args": [["model_path", "/m"], ["api_key", "s3cret"], ["admin_api_key", "None"]],
        "hf_token": "s3cret",
        "message": "--api-key s3cret",
        "count": 3,
        "nothing": None,
    }
    clean = redact_json(data)
    assert "s3cret" not in json.dumps(clean)
    assert clean["args"][0] == ["model_path", "/m"]
    assert clean["args"][2] == ["admin_api_key", "None"]
    assert (clean["count"], clean["nothing"]) == (3, None)
    assert redact_json(clean) == clean


@pytest.mark.parametrize(
    "text",
    ["password" * 20_000, "api_key='" * 20_000, "://" * 50_000, "a:" * 50_000 + "@", "Bearer " * 20_000, "--" * 80_000,
     "eyJ" * 50_000, "'" * 100_000, "api_key=" + "\\" * 100_000],
    ids=lambda text: text[:10],
)  # fmt: skip
def test_hostile_lines_do_not_take_long(text: str) -> None:
    """100 KB each; a quadratic expression would need minutes."""
    started = time.perf_counter()
    redact(text)
    assert time.perf_counter() - started < 1.0
