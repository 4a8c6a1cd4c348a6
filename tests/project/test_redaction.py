"""Secrets of a configuration leave no trace in run.json, in whatever shape they come; ordinary settings stay as they are."""

import argparse
import base64
import collections
import dataclasses
import enum
import functools
import json
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT

from ratioscope import Collector, kept_settings, open_run
from ratioscope.ingest.analysis.info import info
from ratioscope.kept_settings import CHARACTERS, MEMBERS, NAMED, kept
from ratioscope.redaction import REDACTED, without_secrets

X = "hunTer2zz9QqXy7"
"""A secret that nothing but its place tells."""
B64 = base64.b64encode(f"ann:{X}".encode()).decode()
HEX = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class Settings:
    api_key: str
    lr: float = 1e-6


@dataclasses.dataclass
class Nested:
    service: Settings
    model: str = "Qwen/Qwen3"


class Login(NamedTuple):
    user: str
    password: str


class Key(enum.Enum):
    PRODUCTION = "sk-abcdefghijklmnopqrst"


class Level(enum.IntEnum):
    A, B = 1, 2


class Attrs:
    """As the library attrs makes them."""

    __attrs_attrs__ = (types.SimpleNamespace(name="secret_key"), types.SimpleNamespace(name="lr"))
    secret_key, lr = X, 0.5


class Pydantic:
    model_fields = {"hf_token": None, "lr": None}
    hf_token, lr = X, 0.5

    def __str__(self) -> str:
        return f"hf_token={X!r}"


class Client:
    """An object that nobody knows."""

    def __init__(self) -> None:
        self.opaque = X

    def __repr__(self) -> str:
        return f"Client({X})"


class Node(Mapping[Any, Any]):
    """As OmegaConf's DictConfig: a mapping that is no dict."""

    def __init__(self, content: Mapping[Any, Any]) -> None:
        self.content = content

    def __getitem__(self, key: Any) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


UNDER_NAMES: dict[str, Any] = {
    name: {name: X}
    for name in (
        "api_key", "apiKey", "API_KEY", "api-key", "APIKey", "apikey", "x-api-key", "openaiApiKey", "OPENAI_KEY", "HF_TOKEN",
        "hub_token", "wandbkey", "hftoken", "access_token", "accessToken", "refresh-token", "bearer_token", "token", "Token",
        "password", "db_password", "userPassword", "passwd", "pwd", "PGPASS", "db_pass", "passphrase", "client_secret",
        "aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "secret", "private_key", "ssh_key", "signing-key", "encryptionKey",
        "credentials", "Authorization", "auth_token", "Cookie", "webhook", "slack_webhook_url", "sentry_dsn", "sas_token",
        "HF_TOKEN_PROD", "api_key_2", "wandb_api_key_value", "trainer.wandb.api_key", "github_pat", "accountKey",
        "id_rsa", "ssh_id_ed25519",
        "service_account_json", "db_url", "redis-uri", "pem_bundle", "tlsPem", "access_tok", "hfTok", "ssl_keyfile_content",
        "client_pfx",
        "java_keystore", "deploy.id_rsa",
    )
}  # fmt: skip
SECRET_NAMES = """
pad_access_token image_access_token video_api_token output_auth_token stop_auth_token max_access_token loss_api_token
tool_access_token prompt_service_token response_session_token next_auth_token new_access_token start_refresh_token end_id_token
decoder_hub_token access_token_pad accessTokens api_keys.openai auth_tokens.ann nested.privateKeyPem privateKeyPEM
private_key_pem tls_key_pem server_key.pem clientKeyData client-key-data apiKeyV2 api_key_v2 APIKEY APITOKEN SECRETKEY
HF_TOKEN_READ hf_token_rw HF_TOKENS HUGGING_FACE_HUB_TOKEN huggingfaceToken push_to_hub_token use_auth_token WANDB_API_KEY
wandbKey SWANLAB_API_KEY NEPTUNE_API_TOKEN MLFLOW_TRACKING_TOKEN MLFLOW_TRACKING_PASSWORD CLEARML_API_ACCESS_KEY
AWS_SESSION_TOKEN aws_access_key_id OSS_ACCESS_KEY_SECRET VOLC_ACCESS_KEY_ID VOLC_SECRET_ACCESS_KEY minioRootPassword
AZURE_STORAGE_CONNECTION_STRING connectionString conn_str azure_sas sasUrl SharedAccessSignature AZURE_CLIENT_SECRET
GOOGLE_API_KEY gcpServiceAccountKey MODAL_TOKEN_SECRET SERPER_API_KEY E2B_API_KEY sglang_admin_key judge_api_key genrm.api_key
sandbox.token search_tool.api_key ray_redis_password RAY_AUTH_TOKEN PGPASSWORD mysql_pwd rootpw admin_pw pass_phrase pass-word
pass_word smtpPass jwtSecret fernet_key encryption_key_hex session_cookie csrfToken sessionId sshPrivateKey privkey rsa_key
gpg_passphrase keystorePassword basicAuth auth_header x-auth-token X-Goog-Api-Key webhookUri feishu_webhook dingtalk_secret
sentryDsn totp_seed recovery_codes passwordHash client_secrets id_token oauthToken kaggle_key psk aes256_key pre_shared_key
stripe_key DD_APP_KEY vault_token kube_token join_token azureDevOpsPat docker_password ngcApiKey api_key_env password_file
credentials_path token_env password_policy
""".split()
"""Names of clouds, trackers, trainers and tools. A value that is no ordinary word is a secret under the last five, too."""
PLAIN_NAMES = """
pad_token eos_token image_token vision_start_token think_end_token pad_token_id eosTokenId image_token_index stop_token_ids
max_tokens max_new_tokens max_num_batched_tokens ppo_max_token_len_per_gpu num_tokens token_budget tokenizer tokenizer_mode
token_level token_type_ids bad_tokens reasoning_tokens cached_tokens dropped_tokens masked_tokens eot_token eod_token
fim_prefix_token placeholder_token reserved_tokens prefix_token speculative_token_map sglang_speculative_token_map
num_speculative_tokens moe_token_dispatcher_type per_token_loss token_veto_threshold skip_special_tokens key_padding
key_padding_mask num_key_value_heads key_states past_key_values kv_key public_key ssh_public_key access_log access_mode
pass_at_k pass_rate forward_pass prefill_pass bypass_mode num_passes prompt_key reward_fn_key label_key image_key sort_key
cache_key partition_key state_dict_keys key_name keymap keyboard monkey_patch author authority auth_type sign_test
signature_columns remove_unused_columns design session_dir session_timeout ssl_certfile token_file token_path api_base
api_version master_port shared_memory spin compat patience pattern sigma sigmoid secretary hooks forward_hook basalt sectioned
assistant_token system_token max_tok n_tok num_toks eos_tok tok_per_sec tokenizer_path key_cache base_url vllm_url dataset_url
rsa_bits bundle_size bundle service_account_name json_config prompt_content db_size
""".split()
PLAIN_PAIRS = {
    "db_url": "sqlite:///runs", "redis_url": "redis://localhost:6379/0", "ssl_keyfile": "/etc/ssl/key.pem",
    "database_url": "postgresql://db.example.org:5432/runs",
    "api_key_env": "OPENAI_API_KEY", "password_policy": "strict", "credential_provider": "env", "token_file": "/run/tokens/a1",
    "credentials_path": "~/.aws/credentials", "pin_memory_device": "cuda", "pin_memory": True, "salt_length": 16,
    "use_auth_token": False, "password_min_length": 8, "secret_name": "my-secret", "actor.pin_memory": "true",
}  # fmt: skip
SHAPES: dict[str, Any] = {
    **UNDER_NAMES,
    "plural": {"api_keys": {"openai": X, "backup": [X]}},
    "tokens by name": {"tokens": {"ann": X}},
    "nested lists": {"auth_tokens": [[X], [[X]]]},
    "secrets as keys": {"tokens": {f"{X}123": "ann"}},
    "a shape as a key": {"users": {"hf_abcdefghijklmnopqr" + X: 1}},
    "a tuple as key": {("api_key", "prod"): X},
    "a set under a name": {"passwords": {X}},
    "argv": {"argv": ["train.py", "--api-key", X, "--lr", "1e-6"]},
    "argv joined": {"argv": ["train.py", f"--api-key={X}"]},
    "argv with one dash": {"argv": ["-password", X]},
    "a command": {"command": f"python train.py --wandb-key {X} --lr 1e-6"},
    "hydra": {"overrides": ["trainer.lr=1", f"+env.HF_TOKEN={X}", f"++a.b.api_key='{X}'"]},
    "pairs": {"env": [("HF_TOKEN", X), ["WANDB_API_KEY", X]]},
    "name and value": {"env": [{"name": "HF_TOKEN", "value": X}, {"value": X, "name": "API_KEY"}]},
    "environment strings": {"env": [f"HF_TOKEN={X}", f"export WANDB_API_KEY='{X}'"]},
    "a dataclass": {"service": Settings(X)},
    "a dataclass in a dataclass": {"all": Nested(Settings(X))},
    "a dataclass in a list": {"services": [Settings(X)]},
    "a namespace": {"args": argparse.Namespace(api_key=X)},
    "a simple namespace": {"args": types.SimpleNamespace(login=types.SimpleNamespace(password=X))},
    "a named tuple": {"login": Login("ann", X)},
    "attrs": {"of": Attrs()},
    "pydantic": {"of": Pydantic()},
    "a mapping": {"of": Node({"api_key": X})},
    "an unknown object": {"client": Client()},
    "a list of them": {"clients": [Client()]},
    "one as a key": {Client(): 1},
    "an error": {"last": RuntimeError(X)},
    "a partial": {"make": functools.partial(print, X)},
    "bytes": {"api_key": X.encode(), "blob": X.encode()},
    "a path": {"token": Path(X)},
    "numbers": {"password": 73100942, "pin": 73100942},
    "JSON in a string": {"extra": json.dumps({"a": {"api_key": X}})},
    "JSON in JSON": {"extra": json.dumps(json.dumps({"api_key": X}))},
    "a list in JSON": {"extra": json.dumps(["--api-key", X])},
    "keys in JSON": {"extra": json.dumps({"api_keys": ["a", X]})},
    "Python's repr": {"extra": repr({"password": X})},
    "YAML": {"extra": f"model: x\nlogin:\n  password: {X} {X}\n  lr: 1\n"},
    "YAML's list": {"extra": f"- api_key: {X}\n- lr: 1"},
    "TOML": {"extra": f'[login]\ntoken = "{X}"'},
    "INI": {"extra": f"[default]\naws_secret_access_key = {X}"},
    "dotenv": {"extra": f"A=1\nSLACK_TOKEN={X}\nB=2"},
    "a header": {"headers": [f"Authorization: Bearer {X}"]},
    "a header by itself": {"h": f"Bearer {X}"},
    "basic": {"h": f"Basic {B64}"},
    "headers": {"headers": {"Authorization": f"Basic {B64}", "X-Api-Key": X, "Cookie": f"sessionid={X}"}},
    "curl": {"cmd": f"curl -u ann:{X} https://host"},
    "docker login": {"cmd": f"docker login -u ann -p {X}", "argv": ["docker", "login", "-p", X]},
    "curl's arguments": {"argv": ["curl", "-u", f"ann:{X}", "https://host"]},
    "encoded": {"url": f"https://h/?next=token%3D{X}"},
    "bytes as a key": {b"api_key": X},
    "in Chinese": {"数据库密码": X},
    "a number": {"api_key": 73100942},
    "where a text is cut": {"text": "y" * (8192 - 10) + f" ghp_{X}{X}"},
    "netrc": {"netrc_text": f"machine h login ann password {X}"},
    "wandb login": {"cmd": f"wandb login {HEX}"},
    "W&B's 40 hex": {"WANDB_API_KEY": HEX, "wandb": HEX},
    "docker": {"auths": {"registry": {"auth": B64}}},
    "DSN": {"database": f"postgresql://ann:{X}@host:5432/db"},
    "DSN with signs": {"database": f"mysql://ann:p@ss/{X}@host/db"},
    "DSN of words": {"database": f"host=h user=ann password={X} dbname=d"},
    "DSN of ADO": {"connection": f"Server=h;User Id=ann;Password={X};"},
    "Azure's": {"connection": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={X};EndpointSuffix=x"},
    "redis": {"broker": f"redis://:{X}@host:6379/0"},
    "a URL's user": {"remote": f"https://{X}@github.com/a/b"},
    "a query": {"url": f"https://h/x?a=1&api_key={X}&b=2"},
    "a signed URL": {"url": f"https://b.s3.amazonaws.com/k?X-Amz-Signature={X}&X-Amz-Expires=60"},
    "SAS": {"url": f"https://a.blob.core.windows.net/c?sv=1&sig={X}"},
    "Slack's webhook": {"url": f"https://hooks.slack.com/services/T0/B0/{X}"},
    "Discord's webhook": {"url": f"https://discord.com/api/webhooks/123/{X}"},
    "WeCom's webhook": {"url": f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={X}"},
    "Feishu's webhook": {"url": f"https://open.feishu.cn/open-apis/bot/v2/hook/{X}{X}"},
    "JWT": {"x": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0{X}.{X}"},
    "PEM": {"x": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{X}\n-----END OPENSSH PRIVATE KEY-----"},
    "PEM cut off": {"x": f"-----BEGIN RSA PRIVATE KEY-----\n{X}"},
    "a service account": {"sa": {"type": "service_account", "private_key_id": "1", "private_key": X}},
    **{
        f"by its look: {start}": {"x": f"{start}{body}", "y": [f"see {start}{body}, please"]}
        for start, body in (
            ("AKIA", "IOSFODNN7EXAMPLE"), ("ASIA", "IOSFODNN7EXAMPLE"), ("AIza", "SyA-1234567890abcdefghijklmnopqrstu"),
            ("ya29.", "a0AfH6SMBx-1234567890"), ("hf_", "abcdefghijklmnop"), ("sk-", "abcdefghijklmnopqrst"),
            ("sk-proj-", "abcdefghijklmnop1234"), ("sk-ant-api03-", "abcdefghijklmnop-1234"), ("sk_live_", "abcdefghijklm"),
            ("ghp_", "0123456789abcdefghijABCDEFGHIJ456789"), ("github_pat_", "11ABCDEFG0123456789_abcdef"),
            ("glpat-", "abcdefghijklmnopqrst"), ("xoxb-", "123456789012-abcdefghijkl"), ("xapp-1-", "A0123456789-12345"),
            ("nvapi-", "abcdefghijklmnop1234"), ("gsk_", "abcdefghijklmnop1234"), ("wandb_v1_", "abcdefghijklmnop"),
            ("npm_", "abcdefghijklmnopqrstuvwxyz0123456789"), ("pypi-", "AgEIcHlwaS5vcmcabcdef"), ("tml-", "abcdefghijklmnop12"),
            ("SG.", "abcdefghijklmnop.abcdefghijklmnop"), ("hvs.", "abcdefghijklmnopqrst"), ("whsec_", "abcdefghijklmnop"),
        )
    },
}  # fmt: skip
SPOKEN = ("AKIA", "IOSFODNN7", "abcdefghij", "1234567890", "0123456789ab", "ABCDEFG", "73100942", X, B64, HEX)
ORDINARY: dict[str, Any] = {
    "learning_rate": 1e-6, "lr": "1e-6", "model_name": "Qwen/Qwen2.5-7B-Instruct", "tokenizer": "meta-llama/Llama-3.1-8B",
    "tokenizer_name": "gpt2", "max_tokens": 2048, "max_new_tokens": 512, "num_tokens": 10**9, "token_level": "token",
    "loss_agg_mode": "token-mean", "pad_token_id": 0, "pad_token": "<pad>", "eos_token": "<|im_end|>", "bos_token": "<s>",
    "mask_token": "[MASK]", "stop_tokens": ["</s>", "Human:"], "additional_special_tokens": ["<think>", "</think>"],
    "max_tokens_per_gpu": 9216, "is_correction_level": "token", "token_type_ids": True, "tokens_per_second": 1.5,
    "prompt_key": "prompt", "input_key": "question_v2", "label_key": "label", "reward_fn_key": "data_source",
    "image_key": "images",
    "reward_key": "score", "metadata_key": "metadata", "answer_key": "solution2", "tools_key": "tools", "key": "prompt",
    "non_tensor_select_keys": ["uid", "data_source"], "group_key": "level_3", "sort_key": "length", "keys": ["prompt", "answer"],
    "commit": "7a79da9c0ffee7a79da9c0ffee7a79da9c0ffee0", "git_sha": "7a79da9", "revision": HEX, "hf_revision": HEX,
    "dataset": "openai/gsm8k", "dataset_path": "s3://bucket/data/train-00001.parquet", "run_id": "1a2b3c4d",
    "wandb_run_id": "x1y2z3",
    "run_name": "grpo-2026-01-02_03-04-05", "entity": "my-team", "project": "rl", "wandb": {"project": "p", "mode": "offline"},
    "output_dir": "/data/ann/runs/7", "base_url": "http://localhost:8000/v1", "vllm_url": "http://node-3:8000",
    "master_port": 29500,
    "seed": 42, "temperature": 0.7, "top_p": 1.0, "betas": [0.9, 0.95], "authors": ["Ann"], "license": "apache-2.0",
    "dtype": "bfloat16", "attn_implementation": "flash_attention_2", "optim": "adamw_torch", "monkey_patch": "no",
    "hotkeys": "ctrl-c",
    "forward_pass": "chunked", "use_auth_token": True, "password": None, "PWD": "/data/run7", "token": "",
    "api_key": "${oc.env:X}",
    "reward_funcs": ["accuracy", "format"], "lora_target": "q_proj,k_proj", "deepspeed": {"zero_optimization": {"stage": 3}},
    "chat_template": "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% endfor %}", "repo": "git@github.com:ann/rl.git",
    "image": "nvcr.io/nvidia/pytorch:24.01-py3", "cron": "0 3 * * *", "sk": "sk-learn", "task": "task-specific-2024-evaluation",
    "digest": "sha256:" + HEX + HEX[:24], "uuid": "123e4567-e89b-12d3-a456-426614174000", "gpus": "0,1,2,3", "cls": "<class>",
    "argv": ["python", "-u", "train.py", "-p", "8080"], "tokens": 10**9,
    "command": "python train.py --max-tokens 64 --prompt-key question --pad-token '<pad>' trainer.lr=1e-6 data.prompt_key=q1",
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_leaves_no_trace_in_what_is_kept(shape: str) -> None:
    config = SHAPES[shape]
    found = kept(config)
    text = json.dumps(found.settings)
    assert not [spoken for spoken in SPOKEN if spoken in text], text
    assert REDACTED in text or "<" in text
    assert found.secrets or "Client" in text or "<" in text


def test_names_of_secrets_and_names_that_look_like_theirs_are_told_apart() -> None:
    assert [name for name in SECRET_NAMES if X in json.dumps(kept({name: X}).settings)] == []
    assert [name for name in SECRET_NAMES if X in without_secrets(f"--{name}={X}")] == []
    assert [name for name in PLAIN_NAMES if kept({name: X}).secrets] == []
    assert [name for name in PLAIN_NAMES if X not in without_secrets(f"--{name}={X}")] == []
    assert kept(PLAIN_PAIRS) == kept_settings.Kept(PLAIN_PAIRS)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_setting_is_kept(name: str) -> None:
    assert kept({name: ORDINARY[name]}) == kept_settings.Kept({name: ORDINARY[name]})


def test_real_trainers_configurations_are_kept_whole() -> None:
    root = ROOT
    found = [path for folder in ("tests/data", "sample_data") for path in (root / folder).rglob("run.json")]
    assert found
    for path in found:
        config = json.loads(path.read_bytes())["config"]
        assert kept(config).settings == config, path


def test_run_json_holds_no_secret_and_names_what_was_taken_out(tmp_path: Path) -> None:
    config = {"lr": 1e-6, "wandb": {"api_key": X}, "argv": ["--hf-token", X]}
    with Collector(tmp_path / "run", name=f"run sk-{X}{X}", trainer=f"mine token={X}", config=config) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]])
    text = (tmp_path / "run" / "run.json").read_text()
    assert X not in text
    run = json.loads(text)
    assert run["config"] == {"lr": 1e-6, "wandb": {"api_key": REDACTED}, "argv": ["--hf-token", REDACTED]}
    assert run["redacted"] == ["wandb.api_key", "argv[1]"] == info(open_run(tmp_path / "run"))["redacted"]


class Unlogged:
    def __len__(self) -> int:
        raise ValueError(f"cannot be read with api_key={X}")


def test_what_a_run_is_told_of_holds_no_secret(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.event(f"api_key={X}", 0, f"loaded with token={X}")
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]])
        collector.log(step=1, rollout_logprobs=[Unlogged()], old_logprobs=[[-1.0]], mask=[[1]])
    run = open_run(tmp_path / "run")
    assert run.drops["sequences"].sum() == 1 and REDACTED in run.drops["reason"][0] + run.events["note"][0]
    for path in (tmp_path / "run").rglob("*.json*"):
        assert X not in path.read_text()


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if isinstance(SHAPES[shape].get("extra"), str)])
def test_the_rest_of_a_text_stays(shape: str) -> None:
    text = str(SHAPES[shape]["extra"])
    found = without_secrets(f"before {text}")
    assert X not in found and found.startswith("before ") and REDACTED in found


def test_notes_and_errors_keep_their_words() -> None:
    for text in (
        "task-specific", "the key point", "token 5 of 7", "https://host/path", "sk-learn", "step 5: queue full",
        "KeyError: 'prompt_key'", "expected 3 tokens: found 5", "unexpected token: <pad>", "a basic understanding of tokens",
        "http://localhost:8000/v1/files@2", "the engines have the weights after step 5", "ratio = 1.25, key = prompt",
    ):  # fmt: skip
        assert without_secrets(text) == text


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __str__(self) -> str:
        raise RuntimeError("no str")

    __repr__ = __str__


class HostileMapping(Node):
    def __getitem__(self, key: Any) -> Any:
        if key == "missing":
            raise LookupError("???")
        return super().__getitem__(key)


class Endless(Node):
    def __iter__(self) -> Iterator[Any]:
        return iter(int, 1)


def itself() -> dict[str, Any]:
    found: dict[str, Any] = {"lr": 1}
    found["self"] = found
    found["all"] = [found] * 100
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


UNBOUNDED: dict[str, Callable[[], Any]] = {
    "hostile": lambda: Hostile(),
    "hostile value": lambda: {"x": Hostile()},
    "hostile item": lambda: [Hostile()],
    "hostile key": lambda: {Client(): 1, (Hostile(),): 2},
    "endless": lambda: Endless({}),
    "endless value": lambda: {"x": Endless({})},
    "itself": itself,
    "deep": deep,
    "many": lambda: {str(n): "x" * 1000 for n in range(100_000)},
    "long": lambda: {"long": "x" * 50_000_000},
    "range": lambda: {"range": range(10**12)},
    "a number": lambda: 5,
    "a text": lambda: "text",
    "nothing": lambda: None,
    "huge numbers": lambda: {"huge": 10**5000, "nan": float("nan"), "infinite": float("inf")},
    "sets": lambda: {"sets": {1, "a", (2, 3)}, "deque": collections.deque([1])},
    **{
        f"{part!r} again and again": lambda part=part: {str(n): part * 100_000 for n in range(20)}  # type: ignore[misc]
        for part in (
            'a="',
            "a=[",
            "a={",
            "://a:",
            "key ",
            "--a-",
            " ",
            "a.",
            "eyJ",
            "/hook/",
            "\\\\",
            "login x ",
            "0",
            "basic ",
        )
    },
}


@pytest.mark.parametrize("what", UNBOUNDED)
def test_no_configuration_raises_or_is_kept_without_bound(what: str) -> None:
    config = UNBOUNDED[what]()
    began = time.process_time()
    found = kept(config)
    assert time.process_time() - began < 5
    assert len(json.dumps(found.settings, allow_nan=False)) < 2 * CHARACTERS
    assert len(found.secrets) <= NAMED


def test_a_member_that_raises_costs_that_member() -> None:
    found = kept({"trainer": HostileMapping({"missing": 1, "lr": 2})}).settings
    assert found == {"trainer": {"missing": "not available, because reading it raised LookupError", "lr": 2}}


def test_what_is_beyond_the_bounds_is_not_said_to_be_all() -> None:
    assert kept({"many": list(range(2 * MEMBERS))}).settings["many"][-1] == "..."
    assert kept({"long": "x" * 9000}).settings["long"].endswith("... (9000 characters)")
    many = kept({"tokens": [f"{n}{X}" for n in range(NAMED + 7)]})
    assert len(many.secrets) == NAMED and many.more == 7


def test_objects_are_kept_by_what_they_are() -> None:
    import numpy as np
    import torch

    config = {
        "dtype": torch.bfloat16, "device": torch.device("cpu"), "np": np.dtype("float32"), "one": np.float32(0.5),
        "n": np.int64(3),
        "function": json.dumps, "kind": Settings, "enum": Level.B, "tensor": torch.zeros(3), "login": Login("a", ""),
        "blob": b"abc", 7: "seven", "when": None, "path": Path("/models/x"), "settings": Settings("", 0.1), ("a", 1): "pair",
    }  # fmt: skip
    assert kept(config).settings == {
        "dtype": "torch.bfloat16", "device": "cpu", "np": "float32", "one": 0.5, "n": 3, "function": "json.dumps",
        "kind": f"{__name__}.Settings", "enum": 2, "tensor": "<torch.Tensor>", "login": {"user": "a", "password": ""},
        "blob": "<bytes of 3>", "7": "seven", "when": None, "path": "/models/x", "settings": {"api_key": "", "lr": 0.1},
        "a, 1": "pair",
    }  # fmt: skip


def test_what_was_kept_is_kept_again_as_it_is() -> None:
    for shape, config in SHAPES.items():
        once = kept(config)
        again = kept(once.settings)
        assert again.settings == once.settings, shape


@given(st.text())
def test_any_text_can_be_looked_through(text: str) -> None:
    assert without_secrets(without_secrets(text)) == without_secrets(text)


def test_a_trainer_pays_nothing_for_importing_it() -> None:
    heavy = {"requests", "yaml", "numpy", "asyncio", "multiprocessing"}
    code = "import sys; before = set(sys.modules); import ratioscope.kept_settings; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)
