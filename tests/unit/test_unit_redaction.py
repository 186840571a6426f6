"""Secrets are found by their form and by their name, and shown to nobody."""

import pytest

from sparkdash import redaction
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.redaction import (
    MASK,
    is_secret,
    is_secret_flag,
    is_secret_variable,
    masked,
    masked_addresses,
    masked_command,
    masked_values,
    remember_secrets,
    shown_url,
)
from sparkdash.rules import redact_profile, secret_at

TOKEN = "hf_notarealtokenbutlongenough"
LITERAL = Profile(
    name="a",
    engine=EngineKind.VLLM,
    env={"HF_TOKEN": TOKEN, "VLLM_API_KEY": "hunter2-and-more", "OMP_NUM_THREADS": "4"},
    args={"api-key": "letmein", "max-model-len": 4096, "speculative-config": {"hub": f"x {TOKEN}"}},
    command=("vllm", "serve", "--api-key", TOKEN),
    request={"stop_token": "<eos>"},
    silence={"secret-literal": "a test's"},
)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", TOKEN, True), ("VLLM_API_KEY", "hunter2", True), ("DB_PASSWORD", "x y", True), ("ANY", f"Bearer {TOKEN}", True),
        ("OPENAI_API_KEY", "none", False), ("OPENAI_API_KEY", "EMPTY", False), ("MAX_TOKEN_COUNT", "4096", False),
        ("SSL_KEY", "/etc/key.pem", False), ("TOKENIZERS_PARALLELISM", "yes", False), ("MODEL_KEY", "{target}", False),
        ("VLLM_MODEL", "sk-small", False), ("stop-token", "<eos>", False), ("api-key", "letmein", True),
    ],
)  # fmt: skip
def test_a_variable_or_flag_holds_a_secret_by_its_name_or_its_value(name: str, value: str, *, secret: bool) -> None:
    """Not every token has a form that is known, nor every variable a telling name; placeholders and paths are none."""
    by_name = is_secret_flag if name.islower() else is_secret_variable
    assert is_secret(value, name, by_name) is secret


def test_a_text_keeps_everything_but_the_secret() -> None:
    assert masked(f"non-default args: {{'token': '{TOKEN}', 'port': 80}}") == (
        f"non-default args: {{'token': '{MASK}', 'port': 80}}"
    )


def test_keys_in_a_list_are_masked_too() -> None:
    """vLLM takes several keys and logs them as a list."""
    assert masked("args: {'api_key': ['letmein', 'other'], 'port': 80}") == f"args: {{'api_key': [{MASK}], 'port': 80}}"


def test_a_profile_is_shown_without_its_secrets_silenced_or_not() -> None:
    """At any depth; what is no secret, and what kind each value is, stays."""
    shown = redact_profile(LITERAL)
    assert TOKEN not in shown.model_dump_json()
    assert "hunter2" not in shown.model_dump_json()
    assert shown.env == {"HF_TOKEN": MASK, "VLLM_API_KEY": MASK, "OMP_NUM_THREADS": "4"}
    assert shown.args == {"api-key": MASK, "max-model-len": 4096, "speculative-config": {"hub": f"x {MASK}"}}
    assert shown.command == ("vllm", "serve", "--api-key", MASK)
    assert shown.request == LITERAL.request


def test_the_first_secret_is_named_by_its_place_unless_it_is_silenced() -> None:
    assert secret_at(LITERAL.replace(silence={})) == "env.HF_TOKEN"
    assert secret_at(LITERAL) is None


def test_masking_keeps_what_is_no_text() -> None:
    given = {"a": [1, None, True, {"b": 2.5}]}
    assert masked_values(given) == given


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("serve m --api-key one two --port 8000", "serve m --api-key *** *** --port 8000"),
        ("serve m --hf-token=hf_x --port=8000", "serve m --hf-token=*** --port=8000"),
        ("serve m --api-key=abc --stop-token 7", "serve m --api-key=*** --stop-token 7"),
        ("llama-server -m x.gguf --api-key-file /run/key", "llama-server -m x.gguf --api-key-file /run/key"),
        ("serve m --max-model-len 4096", "serve m --max-model-len 4096"),
    ],
)
def test_every_value_of_a_secret_flag_is_masked_in_a_command_line(words: str, shown: str) -> None:
    assert " ".join(masked_command(words.split())) == shown


def test_a_secret_for_one_node_is_found_and_masked_as_well() -> None:
    secret = "hf_" + "Ab1" * 12
    profile = LITERAL.replace(silence={}, env={}, args={}, nodes=2, env_by_node={"spark2": {"HF_TOKEN": secret}})
    assert secret_at(profile) == "env_by_node.spark2.HF_TOKEN"
    assert secret not in redact_profile(profile).model_dump_json()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("not ['HF_TOKEN=anything-at-all', 'A=1']", "not ['HF_TOKEN=***', 'A=1']"),
        ("vllm serve --api-key=hunter2x --port 1", "vllm serve --api-key=*** --port 1"),
        ("not '-x --hf-token hunter2 --creds u:hunter2'", "not '-x --hf-token *** --creds ***'"),
        ("--stop-token <eos> --stop-token 7 --api-key-file /k", "--stop-token <eos> --stop-token 7 --api-key-file /k"),
        ("GET https://h/x?token=abcdef&n=1", "GET https://h/x?token=***&n=1"),
        ("pull https://me:letmein@registry.example/x", "pull https://***@registry.example/x"),
        ("max_tokens=4096 stop_token=/x key=1 MY_TOKEN=none", "max_tokens=4096 stop_token=/x key=1 MY_TOKEN=none"),
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
    ],
)
def test_a_secret_is_masked_by_the_name_in_front_of_it(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_a_secret_of_the_environment_is_masked_wherever_it_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman's errors repeat the command, and with it what no form tells."""
    monkeypatch.setattr(redaction, "_known", set())
    remember_secrets({"MY_API_KEY": "correct horse battery", "HOME": "/home/somebody", "SHORT_KEY": "abc"})
    assert masked("Error: correct horse battery of /home/somebody, abc") == "Error: *** of /home/somebody, abc"


def test_an_address_is_shown_without_login_and_keys() -> None:
    assert shown_url("https://u:pw@x.y/v1?key=hunter2") == "https://***@x.y/v1?key=***"


def test_of_a_webhook_only_the_host_is_shown() -> None:
    text = '[{url = "https://hooks.example/services/T0/B1/verysecret"}]'
    assert masked_addresses(text) == '[{url = "https://hooks.example/***"}]'
