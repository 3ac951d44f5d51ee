"""From a spec to SGLang's command line and environment."""

from pathlib import Path

from service.command import command, option
from service.load import parse
from service.spec import Memory, Parallel, ServerSpec, Speculative


def spec(toml: str) -> ServerSpec:
    return parse(f"model_path = '/m'\n{toml}".encode(), Path("/s/demo.toml"))


def test_least_command() -> None:
    assert command(spec("")).argv == (
        "/opt/inquest/sglang/bin/python", "-m", "sglang.launch_server",
        "--model-path", "/m", "--host", "127.0.0.1", "--port", "30000",
    )  # fmt: skip


def test_full_command() -> None:
    run = command(
        spec(
            """
            served_model_name = "tiny"
            host = "0.0.0.0"
            port = 31000
            python = "/venv/bin/python"
            device = "cpu"
            attention_backend = "torch_native"
            disable_cuda_graph = true
            enable_metrics = false
            watchdog_timeout = 300
            extra_args = ["--json-model-override-args", '{"a": "b c"}', ""]
            [speculative]
            algorithm = "eagle"
            draft_model_path = "/draft"
            num_steps = 3
            eagle_topk = 1
            num_draft_tokens = 4
            [memory]
            mem_fraction_static = 0.3
            max_total_tokens = 4096
            chunked_prefill_size = -1
            [parallel]
            tp_size = 2
            enable_dp_attention = true
            [limits]
            memory_max = "1G"
            """
        )
    )
    assert run.argv == (
        "/venv/bin/python", "-m", "sglang.launch_server",
        "--model-path", "/m", "--served-model-name", "tiny", "--host", "0.0.0.0", "--port", "31000",
        "--device", "cpu", "--attention-backend", "torch_native", "--disable-cuda-graph", "--watchdog-timeout", "300.0",
        "--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "/draft",
        "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
        "--mem-fraction-static", "0.3", "--max-total-tokens", "4096", "--chunked-prefill-size", "-1",
        "--tp-size", "2", "--enable-dp-attention",
        "--json-model-override-args", '{"a": "b c"}', "",
    )  # fmt: skip


def test_path_begins_with_the_environment() -> None:
    assert command(spec("python = '/venv/bin/python'")).env["PATH"].split(":")[:2] == ["/venv/bin", "/usr/local/sbin"]


def test_given_path_is_kept_behind_it() -> None:
    toml = "python = '/venv/bin/python'\n[env]\nPATH = '{}'"
    assert command(spec(toml.format("/cuda/bin:/bin"))).env["PATH"] == "/venv/bin:/cuda/bin:/bin"
    assert command(spec(toml.format("/cuda/bin:/venv/bin"))).env["PATH"] == "/cuda/bin:/venv/bin"


def test_only_what_the_spec_says_is_set() -> None:
    run = command(spec("[env]\nHF_HUB_OFFLINE = '1'\nPYTHONUNBUFFERED = ''"))
    assert {k: v for k, v in run.env.items() if k != "PATH"} == {"PYTHONUNBUFFERED": "", "HF_HUB_OFFLINE": "1"}


def test_every_key_of_a_table_is_one_option() -> None:
    tables = {"speculative": Speculative, "memory": Memory, "parallel": Parallel}
    options = [option(table, key) for table, model in tables.items() for key in model.model_fields]
    assert len(options) == len(set(options))
    assert "--speculative-ngram-max-bfs-breadth" in options
