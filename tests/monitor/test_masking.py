"""No secret leaves the machine, however it is written; what a report needs stays."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seekserve.monitor.masking import MASK, Masker, is_sensitive, known_secrets

NAMES = st.sampled_from(
    ["HF_TOKEN", "NGC_API_KEY", "API_KEY", "SMTP_PASSWORD", "clientSecret", "AWS_SECRET_ACCESS_KEY", "x-api-key",
     "Authorization", "seekserve-admin-key", "SEEKSERVE_PROBE_KEY", "db_passwd", "private_key", "accessToken"]
)  # fmt: skip
# Anything that can be a value, but no word that the report itself writes.
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)
PLAIN = SECRETS.filter(lambda text: not set(text) & set("\"'\\<>@/ "))
MASKER = Masker()


@settings(deadline=None)
@given(NAMES, SECRETS)
def test_in_an_environment(name: str, secret: str) -> None:
    variable = name.replace("-", "_")
    assert secret not in json.dumps(MASKER.env({variable: secret, "PATH": "/bin"}))


@settings(deadline=None)
@given(NAMES, SECRETS, st.booleans())
@example("x-api-key", "-dashing1", True)
def test_in_arguments(name: str, secret: str, is_joined: bool) -> None:
    flag = "--" + name.replace("_", "-")
    arguments = [f"{flag}={secret}"] if is_joined or secret.startswith("--") else [flag, secret]
    masked = MASKER.argv(["tritonserver", *arguments, "--http-port", "8000"])
    assert secret not in "\n".join(masked)
    assert masked[-2:] == ["--http-port", "8000"]


@settings(deadline=None)
@given(PLAIN)
def test_the_key_of_a_launch_in_its_server_s_arguments(secret: str) -> None:
    guard = f"model-repository,shared-memory,trace,logging:seekserve-admin-key={secret}"
    for argument in (f"--http-restricted-api={guard}", f"--grpc-restricted-protocol={guard}"):
        assert secret not in "".join(MASKER.argv(["tritonserver", argument]))
        assert secret not in MASKER.text(f"running: tritonserver {argument} --model-store /models")


@settings(deadline=None)
@given(NAMES, SECRETS)
def test_in_json_however_deep(name: str, secret: str) -> None:
    data = {"server": [{"options": {name: secret, "port": 8000, "list": {name: [secret]}}}]}
    masked = MASKER.json_text(json.dumps(data))
    assert json.dumps(secret)[1:-1] not in masked
    assert json.loads(masked)["server"][0]["options"]["port"] == 8000


@settings(deadline=None)
@given(NAMES, SECRETS, st.sampled_from(["{}: {}", "{}={}", "  {} : {}", "export {}={}", '{}: "{}"']))
def test_in_a_file_of_settings(name: str, secret: str, form: str) -> None:
    text = "port: 8000\n" + form.format(name, secret) + "\nmax_tokens: 512\n"
    masked = MASKER.lines(text)
    assert secret not in masked
    assert "max_tokens: 512" in masked


@settings(deadline=None)
@given(NAMES, PLAIN, st.sampled_from(["{}={}", '"{}": "{}"', "{}: {}", "--{} {}", "{} = '{}'"]))
def test_in_a_line_of_a_log(name: str, secret: str, form: str) -> None:
    line = "E1130 02:53:36 starting with " + form.format(name, secret) + " on port 8000"
    masked = MASKER.text(line)
    assert secret not in masked
    assert masked.endswith("on port 8000")


@settings(deadline=None)
@given(SECRETS)
def test_a_known_secret_goes_wherever_it_stands(secret: str) -> None:
    masker = Masker(known_secrets({"HF_TOKEN": secret}))
    forms = (f"got {secret}!", json.dumps({"note": secret}), f"x={shlex.quote(secret)}", json.dumps([[secret]]))
    for text in forms:
        assert secret not in masker.text(text)
    assert secret not in json.dumps(masker.json({"log": [f"a {secret} b"], secret: 1}))


@pytest.mark.parametrize(
    "text",
    [
        "https://user:hunter22@example.org/v1",
        "Authorization: Bearer hunter22abc",
        "pulled with hf_hunter22hunter22hunter22",
        "nvapi-hunter22hunter22hunter22",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter22\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1.hunter22.hunter22",
    ],
)
def test_shapes_of_well_known_keys(text: str) -> None:
    assert "hunter22" not in MASKER.text(text)


def test_a_parameter_of_config_pbtxt() -> None:
    text = (
        'parameters {\n  key: "api_key"\n  value { string_value: "hunter22" }\n}\nparameters {\n  key: "bundle_dir"\n'
    )
    text += '  value { string_value: "/bundles/v3" }\n}\n'
    masked = MASKER.pbtxt(text)
    assert "hunter22" not in masked
    assert 'string_value: "/bundles/v3"' in masked
    assert 'key: "bundle_dir"' in masked


def test_what_a_report_needs_stays() -> None:
    data = {
        "max_tokens": 512, "bos_token": "<s>", "tokens_per_block": 64, "num_key_value_heads": 128, "kv_cache": {"a": 1},
        "bytes_per_token": 70272, "step_model": [[1, 14.0]],
    }  # fmt: skip
    assert MASKER.json(data) == data
    line = "request r12 failed in the engine: its KV blocks were lost (drill)"
    assert MASKER.text(line) == line
    metrics = 'seekserve_queue_requests{model="v3",class="interactive"} 3\n'
    assert MASKER.text(metrics) == metrics


def test_what_clients_wrote_is_left_out() -> None:
    masked = json.dumps(
        MASKER.json({"id": "r1", "prompt": "tell me", "messages": [{"role": "user", "content": "tell"}]})
    )
    assert "tell" not in masked
    assert '"r1"' in masked
    assert "tell" not in MASKER.text('inputs {"text_input": "tell me more", "id": "r1"}')


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [("HF_TOKEN", True), ("apiKey", True), ("ADMIN_KEY_FILE", True), ("bos_token", False), ("max_tokens", False),
     ("num_key_value_heads", False), ("webhook_url", True), ("PATH", False), ("", False)],
)  # fmt: skip
def test_names(name: str, is_secret: bool) -> None:
    assert is_sensitive(name) is is_secret
    assert MASK
