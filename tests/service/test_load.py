"""Specs from TOML: what is taken, and how each mistake is told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.load import SpecError, digest_of, load, parse, wants_boot

FILE = Path("/etc/inquest/servers/demo.toml")


def mistakes(toml: str | bytes, path: Path = FILE) -> list[str]:
    """The messages for a bad spec, without the file's name in front."""
    with pytest.raises(SpecError) as caught:
        parse(toml if isinstance(toml, bytes) else toml.encode(), path)
    lines = [str(problem) for problem in caught.value.problems]
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_least_spec_has_defaults() -> None:
    spec = parse(b'model_path = "/m"', FILE)
    assert (spec.name, spec.model_path, spec.host, spec.port) == ("demo", "/m", "127.0.0.1", 30000)
    assert spec.python == "/opt/inquest/sglang/bin/python"
    assert (spec.user, spec.enabled, spec.env, spec.extra_args) == ("sglang", False, {}, [])
    assert (spec.limits.restart, spec.limits.oom_policy) == ("on-failure", "kill")


def test_full_spec_is_taken() -> None:
    spec = parse(
        b"""
        model_path = "Qwen/Qwen3-8B"
        enabled = true
        extra_args = ["--moe-dp-size", "2"]
        [speculative]
        algorithm = "eagle3"
        draft_model_path = "/models/draft"
        num_steps = 3
        eagle_topk = 1
        num_draft_tokens = 4
        [memory]
        mem_fraction_static = 0.85
        [parallel]
        tp_size = 2
        [limits]
        memory_max = "24G"
        memory_high = 1000000
        timeout_stop = 90
        restart_sec = "1min 30s"
        [env]
        OMP_NUM_THREADS = 4
        HF_HUB_OFFLINE = "1"
        """,
        FILE,
    )
    assert spec.speculative.algorithm == "EAGLE3"
    assert (spec.limits.memory_max, spec.limits.memory_high) == ("24G", "1000000")
    assert (spec.limits.timeout_stop, spec.limits.restart_sec) == ("90s", "1min 30s")
    assert spec.env == {"OMP_NUM_THREADS": "4", "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", "model_path: is missing: every server needs it"),
        ("model_path = ", "is not valid TOML: Invalid value (at line 1, the last)"),
        ("model_path = '/m'\nmodel_path = '/n'", "is not valid TOML: Cannot overwrite a value (at line 2, the last)"),
        (b"# \xff\n", "is not UTF-8 text (line 1): TOML files must be"),
        (b"# fine\nmodel_path = '\xff'\n", "is not UTF-8 text (line 2): TOML files must be"),
        ("model_path = \n\nport = 1", "is not valid TOML: Invalid value (at line 1, column 14)"),
        ("port = 70000", "port: must be at most 65535; it is 70000"),
        ("port = '30000'", "port: must be a whole number, without quotes; it is '30000'"),
        ("port = true", "port: must be a whole number, without quotes; it is True"),
        ("enabled = 'yes'", "enabled: must be true or false, without quotes; it is 'yes'"),
        ("host = 1", "host: must be text in quotes; it is 1"),
        ('host = "a\\nb"', "host: must not hold line breaks or other control characters (found '\\n'); it is 'a\\nb'"),
        ("user = 'a b'", "user: is not a valid name; it is 'a b'"),
        (
            "python = 'bin/python'",
            "python: must be an absolute path without spaces, quotes, backslashes, '$' or '%' "
            "(systemd runs it as is); it is 'bin/python'",
        ),
        (
            "model_path = '~/models/x'",
            "model_path: must be an absolute path or a repository id such as 'org/name': a service has no home or "
            "current directory of yours to start from; it is '~/models/x'",
        ),
        ("prot = 1", "prot: is not a key; did you mean 'port'?"),
        ("speculative_num_steps = 3", "speculative_num_steps: is not a key here; write it as 'num_steps' in the "
         "table [speculative]"),
        ("mem_fraction_static = 0.8", "mem_fraction_static: is not a key here; write it as 'mem_fraction_static' in "
         "the table [memory]"),
        ("[memory]\nport = 1", "memory.port: is not a key here; write it as 'port' before the first table"),
        ("[speculative]\nnum_step = 3", "speculative.num_step: is not a key; did you mean 'speculative.num_steps'?"),
        ("[memroy]\nx = 1", "memroy: is not a table of a spec; there are [speculative], [memory], [parallel], "
         "[limits] and [env]"),
        ("moe_dp_size = 2", "moe_dp_size: is not a key; an option of SGLang without a key goes into extra_args: "
         "['--moe-dp-size', …]"),
        ("memory = 3", "memory: must be a table: write [memory] and the keys below it"),
        ("[memory]\nmem_fraction_static = 1.5", "memory.mem_fraction_static: must be less than 1.0; it is 1.5"),
        ("[memory]\nmem_fraction_static = nan", "memory.mem_fraction_static: must be less than 1.0; it is nan"),
        ("[memory]\nmax_total_tokens = 4.5",
         "memory.max_total_tokens: must be a whole number, without quotes; it is 4.5"),
        (
            "[limits]\nmemory_max = '24 gigs'",
            "limits.memory_max: must be a size such as '24G', '512M' or '80%', a number of bytes, or 'infinity'; "
            "it is '24 gigs'",
        ),
        (
            "[limits]\ntimeout_stop = '5 parsecs'",
            "limits.timeout_stop: must be a time such as '90s', '5min' or '1h 30min', a number of seconds, or "
            "'infinity'; it is '5 parsecs'",
        ),
        (
            "[limits]\nrestart = 'sometimes'",
            "limits.restart: must be one of 'no', 'on-failure', 'on-abnormal', 'on-abort' or 'always'; "
            "it is 'sometimes'",
        ),
        ("[env]\n'A B' = '1'", "env: 'A B' is not a name for an environment variable: letters, digits and '_' only"),
        ("[env]\nMAINPID = '1'", "env: MAINPID is set by systemd itself and must not be given"),
        ("[env]\nX = true", 'env.X: must be text: write "1" or "true" in quotes, programs differ in which they '
         "understand"),
        ("[env]\nX = 1.5", "env.X: must be text in quotes"),
        ("extra_args = '--a'", "extra_args: must be a list of strings such as ['--dtype', 'bfloat16']"),
        ("extra_args = ['bfloat16']", "extra_args: must begin with an option such as '--dtype'"),
        ("extra_args = ['--port', '1']", "extra_args: --port has a key of its own: write it as 'port'"),
        ("extra_args = ['--speculative-num-steps=3']", "extra_args: --speculative-num-steps has a key of its own: "
         "write it as 'speculative.num_steps'"),
        ("name = 'x'", "name: is not a key: the server is called 'demo' after its file"),
    ],
)  # fmt: skip
def test_mistake_is_told_in_words(toml: str | bytes, message: str) -> None:
    if isinstance(toml, str) and toml and "model_path" not in toml:
        toml = "model_path = '/m'\n" + toml
    assert mistakes(toml) == [message]


def test_every_mistake_is_told() -> None:
    assert [line.split(":")[0] for line in mistakes("port = 0\nprot = 1\n[memory]\npage_size = 0\n")] == [
        "model_path",
        "port",
        "memory.page_size",
        "prot",
    ]


def test_secret_is_not_repeated() -> None:
    lines = mistakes("model_path = '/m'\nextra_args = ['hunter2', 3]\n[env]\nHF_TOKEN = \"hunter2\\n\"\n")
    assert len(lines) == 2
    assert not any("hunter2" in line for line in lines)


def test_long_value_is_cut() -> None:
    (line,) = mistakes(f"model_path = '/m'\nhost = '{'x' * 500}\\t'\nport = '{'9' * 500}'")
    assert line.startswith("port: ")
    assert len(line) < 160


@pytest.mark.parametrize("name", ["-x", ".x", "a b", "a@b", "a/b"[:1] + "%", "ä", "x" * 65, ""])
def test_unusable_name_is_told(name: str) -> None:
    (message,) = mistakes("model_path = '/m'", Path(f"/etc/inquest/servers/{name}.toml"))
    assert message.startswith(f"{name!r} cannot name a server: rename the file; allowed are letters, digits")


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "qwen.toml").write_text("model_path = '/m'")
    with pytest.raises(SpecError, match=r"qwem\.toml: does not exist; did you mean 'qwen'\?"):
        load(tmp_path / "qwem.toml")
    with pytest.raises(SpecError, match=r"other\.toml: does not exist; servers with a spec: qwen"):
        load(tmp_path / "other.toml")


def test_what_is_not_a_spec_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SpecError, match="is not a file"):
        load(tmp_path / "folder.toml")
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(SpecError, match="is larger than 1 MiB"):
        load(tmp_path / "huge.toml")


def test_deep_nesting_is_a_mistake() -> None:
    assert mistakes("model_path = " + "[" * 100_000)[0].startswith("is not valid TOML")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_spec_or_mistakes(raw: bytes) -> None:
    assert _outcome(raw)


@given(st.dictionaries(st.sampled_from(["model_path", "port", "env", "memory", "extra_args", "zzz"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5,
)))  # fmt: skip
def test_any_table_gives_a_spec_or_mistakes(table: dict[str, object]) -> None:
    assert _outcome(_toml(table).encode("utf-8", "surrogatepass"))


def _outcome(raw: bytes) -> str:
    """The server's name, or its mistakes in words; any other exception is the test's failure."""
    try:
        return parse(raw, FILE).name
    except SpecError as error:
        return "\n".join(map(str, error.problems))


def _toml(value: object) -> str:
    """A TOML document for a table, as far as TOML can say it (nothing is written for None)."""

    def inline(v: object) -> str:
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, str):
            return '"' + "".join(f"\\U{ord(c):08x}" for c in v) + '"'
        if isinstance(v, list):
            return "[" + ", ".join(inline(x) for x in v if x is not None) + "]"
        if isinstance(v, dict):
            return "{" + ", ".join(f"{inline(k)} = {inline(x)}" for k, x in v.items() if x is not None) + "}"
        return repr(v)

    assert isinstance(value, dict)
    return "\n".join(f"{k} = {inline(v)}" for k, v in value.items() if v is not None)


def test_enabled_is_seen_beside_mistakes() -> None:
    assert wants_boot(b"enabled = true\nprot = 1")
    assert not wants_boot(b"enabled = 'true'")
    assert not wants_boot(b"enabled = true\nprot = ")
    assert not wants_boot(b"\xff")


def test_digest_tells_an_edit() -> None:
    assert digest_of(b"a") == digest_of(b"a") != digest_of(b"b")
