"""Detects secrets by the name of the setting or by their shape. One list for the collector, which stores none, and the report.

The table is our own. detect-secrets (1.5.0), the kept library for this, takes 520 ms to import and brings requests, urllib3 and
multiprocessing into a trainer; it needs 3 ms a value, keeps its settings in a global, knows no keys of Hugging Face, Anthropic,
Google or W&B, and its measure of entropy takes "Qwen/Qwen2.5-7B" and every git SHA for secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import IntEnum

REDACTED = "[redacted]"


class NameSecrecy(IntEnum):
    """The degree to which the name of a setting makes its value a secret."""

    PLAIN = 0
    WEAK = 1  # unless the value is an ordinary word, as a column's name is
    SECRET = 2
    STRONG = 3  # numbers, too


_STRONG = set(
    "password passwords passwd pwd passphrase passphrases passcode passcodes secret secrets credential credentials creds apikey "
    "apikeys authorization oauth bearer jwt webhook webhooks dsn otp totp mnemonic netrc pgpass htpasswd sas psk cookie cookies "
    "pin salt".split()
)
"""A word that makes a name a secret's."""
_STRONG_ENDINGS = tuple(
    end + plural
    for plural in ("", "s")
    for end in (
        "password passwd passphrase secret apikey accesskey accesskeyid secretkey privatekey privkey accountkey authkey sshkey "
        "signingkey clientkeydata accesstoken authtoken apitoken refreshtoken bearertoken sessiontoken sessionid "
        "connectionstring connectionstr connstr recoverycode backupcode keypass storepass seedphrase kubeconfig pw".split()
    )
)
"""The end of up to three words of a name, written together: it makes a secret whatever else the name says."""
_HEADS = {"token", "tokens", "key", "keys", "auth", "auths", "authentication", "signature", "sig", "pass", "pat"}
"""Secret where they end a name: an `auth_type`, `token_level` or `key_states` is none."""
_TAILS = set(
    "value values str string text plain raw b base hex list map dict json pem der header prod production dev staging test "
    "live primary secondary old new backup default main current read write rw ro v".split()
)
"""The form or the place of what the words before them name."""
_REFERENCES = {"env", "var"}
"""Ends of a name whose value is the name of a variable, if it looks like one."""
_ABOUT = set(
    "file files filename path paths dir folder name policy provider type kind level mode method length len size min max count "
    "timeout ttl expiry interval enabled enable required store backend endpoint device memory".split()
)
"""Ends of a name that is about a secret. The value is kept only if it is an ordinary word or path."""
_ORDINARY_TOKENS = set(
    "bos eos pad unk sep cls mask image video audio stop special start end begin think tool vision im box new added additional "
    "extra max min num number total per by over each every next first last target draft forced suppress decoder prompt response "
    "completion generated output input loss valid eot eod eom boi eoi boa eoa fim prefix suffix middle language task control "
    "reserved placeholder unused newline space delimiter cached reasoning thinking bad allowed ignore truncate speculative kept "
    "dropped clipped masked visual assistant system".split()
)
_SECRET_TOKENS = set("id hub service csrf xsrf bot personal deploy login client job user oauth jwt".split())
"""The word before `token` that makes it a secret, whatever comes before."""
_ORDINARY_KEYS = set(
    "prompt label labels input output answer answers response responses reward rewards metadata meta tool tools image images "
    "video videos audio multimodal data source text question solution completion message messages chat column field sort order "
    "group index foreign partition cache batch feature features target context eval test train loss mask fn function score "
    "state monitor metric metrics dataset reference ground truth system uid name select pop tensor non info model layer param "
    "module query missing unexpected ignore exclude include extra logging log dict past kv".split()
)
_SECRET_KEYS = set(
    "api access secret private auth signing sign encryption decryption account master session ssh gpg pgp rsa subscription "
    "service storage shared deploy client consumer license webhook hmac admin app application server host user root "
    "aws gcp google azure openai anthropic claude gemini huggingface hf wandb comet neptune github gitlab slack cohere groq "
    "mistral together fireworks tinker openrouter replicate deepseek dashscope nvidia ngc modal runpod tavily serper serpapi "
    "exa jina pinecone langsmith langfuse litellm judge".split()
)
_SERVICES = {"wandb", "openai", "anthropic", "huggingface", "hf", "comet", "neptune", "github", "gitlab", "tinker"}
_MATERIAL = set("pem pfx ppk jks pkcs rsa dsa ecdsa ed keyfile keyfiles keystore truststore keyring keytab".split())
"""Words for a key itself, or for the file it lies in."""
_CONTENTS = set("content contents data bytes blob body".split())
"""Ends of a name whose value is what lies in a file."""
_STORES = set(
    "db database sql sqlalchemy postgres postgresql pg mysql mariadb mongo mongodb redis amqp rabbitmq broker celery jdbc".split()
)
"""A URL of one of these contains a login, unless it is one of a host alone."""
_ACCESS = set("access auth api refresh bearer session secret".split())
"""The word before `tok` that makes it a token; otherwise `tok` is a number of them, or a tokenizer."""
_ORDINARY_PASSES = {"forward", "backward", "prefill", "first", "second", "multi", "single", "by", "at"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ORDINARY = re.compile(r"[~./]{0,3}[a-z]+(?:[_./-]{1,2}[a-z]+)*|[A-Z]+(?:_[A-Z]+)+", re.ASCII)
"""A word, a path of words, or the name of a variable."""
_SPECIAL = re.compile(
    r"|<[^<>\s]{1,40}>|\[[A-Z_]{1,20}\]|\$\{[\w.:,]{1,80}\}|(?i:none|null|true|false)|\d{1,3}|\\n|\*+"
)
"""Values that are no secret under any name: a special token, a reference, a small number, a mask of stars."""
_HOST = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[a-z0-9.-]{0,60}(?::\d{1,5})?(?:/\d{0,3}|/[a-z_]{0,20})", re.ASCII)
"""A URL of a host and the name of a database: nobody logs in with it."""
_ELSEWHERE = ("密码", "密钥", "口令", "令牌")  # password, key, passphrase, token
_FOLDERS = ("PWD", "OLDPWD")  # variables of a shell that hold a folder

_SHAPES = (
    ("PRIVATE KEY", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*-----|\Z)"),
    ("LS0tLS1CRUdJTi", r"LS0tLS1CRUdJTi[\w+/=]+"),  # the same in base64
    ("PuTTY-User-Key", r"PuTTY-User-Key-File-(?s:.*)"),
    ("AGE-SECRET-KEY", r"AGE-SECRET-KEY-1\w+"),
    ("eyJ", r"\beyJ[\w+/=-]{16,}(?:\.[\w+/=-]+)*"),  # JWT; Neptune's
    (
        "A",
        r"\b(?:AKIA|ASIA|AIDA|AROA|AGPA|ABIA|ACCA)[A-Z0-9]{12,}|\bLTAI\w{12,}|\bAKID\w{13,}",
    ),  # AWS, Alibaba, Tencent
    ("AIza", r"\bAIza[\w-]{16,}"),  # Google, as the next two
    ("ya29.", r"\bya29\.[\w.-]{16,}"),
    ("GOCSPX-", r"\bGOCSPX-[\w-]{16,}"),
    ("8Q~", r"\b\w{3}8Q~[\w.~-]{20,}"),  # Azure
    ("_", r"\b(?:hf|api_org)_[A-Za-z0-9]{12,}|\b(?:gsk|r8|fw|rpa)_[A-Za-z0-9]{16,}|\btgp_v1_[\w-]{16,}"),
    ("nvapi-", r"\bnvapi-[\w-]{16,}"),
    ("sk-", r"\bsk-(?:[a-z]+\d*-){0,3}[A-Za-z0-9_]{12,}[\w-]*"),  # OpenAI, Anthropic and others
    ("-", r"\b(?:xai|pplx|tml|csk)-[\w-]{16,}"),
    ("_", r"\b(?:[sr]k|pk)_(?:live|test)_\w{8,}|\bwhsec_[\w+/=]{12,}"),  # Stripe
    ("gh", r"\bgh[pousr]_\w{12,}"),
    ("github_pat_", r"\bgithub_pat_\w{12,}"),
    ("gl", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[\w-]{12,}"),
    ("xox", r"\bxox[a-z]-[\w-]{8,}"),  # Slack
    ("xapp-", r"\bxapp-\d-[\w-]{8,}"),
    ("wandb_v1_", r"\bwandb_v1_\w{8,}"),
    ("local-", r"\blocal-[0-9a-f]{40}"),  # W&B on one's own server
    ("dapi", r"\bdapi[0-9a-f]{32}\w*"),  # Databricks
    ("hvs.", r"\bhvs\.[\w-]{16,}"),
    ("npm_", r"\bnpm_\w{20,}"),
    ("pypi-", r"\bpypi-[\w-]{16,}"),
    ("SG.", r"\bSG\.[\w-]{12,}\.[\w-]{12,}"),
    ("key-", r"\bkey-[0-9a-f]{32}"),
    ("_", r"\bshp(?:at|ss|ca|pa)_\w{16,}|\bdo[opr]_v1_\w{16,}|\blin_api_\w{16,}"),
    (":", r"\b\d{8,10}:[\w-]{35}"),  # Telegram's bots
    (".", r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),  # Discord's bots
    ("://", r"(?<=://)[^/\s:@]{0,200}:(?!\d+/)[^\s\"']{0,400}(?=@)|(?<=://)[\w.~%-]{12,}(?=@)"),  # who:password@host
    ("hooks.slack", r"\bhooks\.slack\.com/[^\s\"'<>]+"),
    ("webhook", r"\bdiscord(?:app)?\.com/api/webhooks/[^\s\"'<>]+|\.webhook\.office\.com/[^\s\"'<>]+"),
    ("hook", r"(?<=/)(?:web)?hooks?/(?:[^\s\"'<>/]{1,100}/){0,5}[\w=-]{16,}[^\s\"'<>]*"),
    ("api.telegram", r"\bapi\.telegram\.org/bot[^\s\"'<>/]+"),
    ("earer ", r"(?i:(?<=\bbearer ))[^\s\"',;]{6,}"),
    ("wandb login", r"(?<=\bwandb login )\s*[^\s\"',;]{6,}"),
    (" -u ", r"(?<= -u )[^\s:]+:[^\s\"']+"),  # curl
    ("login", r"(?<= -p )[^\s\"']+"),
    ("sshpass", r"(?<=\bsshpass -p)\s*[^\s\"']+"),
    ("mysql", r"(?<= -p)[^\s\"']+"),
    ("%3D", r"(?i:(?<=token%3D)|(?<=key%3D)|(?<=secret%3D)|(?<=password%3D)|(?<=signature%3D))[^\s&%\"']+"),
    ("password", r"(?<=\blogin )[^\s]{1,200}\s{1,9}password\s{1,9}\S+"),  # a line of a .netrc
)
"""(mark, pattern) of each kind of secret: a text is searched for a pattern only if it contains the mark."""
_LOOKS = tuple((mark, re.compile(look)) for mark, look in _SHAPES)
_BASIC = re.compile(r"(?i:\bbasic\s+)([A-Za-z0-9+/]{4,}={0,2})")
_QUERY = re.compile(r"(?<=[?&;])([\w.-]{1,60})=([^\s&;\"'<>]+)")
_QUERY_NAMES = {"sig", "key", "code", "x-amz-signature", "x-amz-credential", "x-goog-signature", "x-goog-credential"}
_VALUE = (
    r"""\[[^\]]{0,4000}\]?|\{[^}]{0,4000}\}?|\\+"(?:(?!\\+")[^\n]){0,4000}|"(?:[^"\\]|\\.){0,4000}"?|'(?:[^'\\]|\\.){0,4000}'?"""
    r"""|[^\s"',;&)}\]]+"""
)
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])([A-Za-z_][\w.-]{{0,200}})((?:\\*["'])?\s{{0,3}}(?:=>|:=|=|:)\s{{0,3}})({_VALUE})"""
    rf"""|(?<![\w.-])(--?[A-Za-z][\w.-]{{0,200}})((?:\\*["'])?(?:=|[\s,]{{1,8}}))({_VALUE})""",
    re.DOTALL,
)
_STEM = re.compile(
    "pass|pw|psk|secret|session|conn|code|cred|key|tok|auth|ur[li]|pem|pfx|ppk|jks|pkcs|rsa|dsa|ed25519|account|bearer|jwt|cookie|hook|dsn|otp|pin|mnemonic|netrc|sas|salt|sig|pat|"
    + "|".join(sorted(_SERVICES)),
    re.IGNORECASE,
)
"""Words of which every secret's name contains one."""
_REST = re.compile(r"[^\r\n\"']*")


def name_of(name: str) -> NameSecrecy:
    """The secrecy that the name of a setting implies for its value, however the name is written.

    >>> [name_of(name).name for name in ("wandbApiKey", "prompt_key", "max_tokens", "HF_TOKEN", "db-password")]
    ['STRONG', 'PLAIN', 'PLAIN', 'SECRET', 'STRONG']
    """
    if any(word in name for word in _ELSEWHERE):
        return NameSecrecy.STRONG
    words = [word.lower() for word in _WORDS.findall(name[:256])]
    if not words or name in _FOLDERS:
        return NameSecrecy.PLAIN
    if words[-1] in ("tok", "toks") and words[-2:-1] and words[-2] in _ACCESS | _SECRET_TOKENS | _SERVICES:
        words[-1] = "token"
    return max(_of_material(words), _of_words(words))


def _of_material(words: list[str]) -> NameSecrecy:
    """The secrecy of a name of a key's file, of what lies in it, or of a URL with a login."""
    if words[-1] in ("url", "urls", "uri", "uris"):
        return NameSecrecy.WEAK if _STORES.intersection(words) else NameSecrecy.PLAIN
    end = len(words)
    while end and words[end - 1] not in _MATERIAL and words[end - 1] in _TAILS | _CONTENTS | {"bundle"}:
        end -= 1
    is_one = words[max(0, end - 1) : end] and words[end - 1] in _MATERIAL
    is_account = end < len(words) and words[max(0, end - 2) : end] == ["service", "account"]
    if not (is_one or is_account):
        return NameSecrecy.PLAIN
    return NameSecrecy.SECRET if _CONTENTS.intersection(words[end:]) else NameSecrecy.WEAK


def _of_words(words: list[str]) -> NameSecrecy:
    if words[-1] in _REFERENCES:
        return min(name_of("_".join(words[:-1])), NameSecrecy.WEAK)
    while len(words) > 1 and words[-1] in _TAILS and not _is_strong(words):
        words.pop()
    if _is_strong(words):
        return NameSecrecy.STRONG
    if any(_is_strong(words[:end]) for end in range(1, len(words))):
        return NameSecrecy.WEAK if words[-1] in _ABOUT else NameSecrecy.SECRET
    return NameSecrecy.SECRET if _joined(words[-1]) else _of_head(words[-1], words[:-1])


def _is_strong(words: list[str]) -> bool:
    """True if these words end with one that is a secret's, or with several that are one together: `privateKey`."""
    return words[-1] in _STRONG or "".join(words[-3:]).endswith(_STRONG_ENDINGS)


def _of_head(head: str, others: list[str]) -> NameSecrecy:
    """The secrecy of a name that ends with this word."""
    if head in ("token", "tokens", "pat"):
        is_ordinary = _ORDINARY_TOKENS.intersection(others) and others[-1] not in _SECRET_TOKENS | _SERVICES
        return NameSecrecy.PLAIN if is_ordinary else NameSecrecy.SECRET
    if head in ("key", "keys"):
        if "public" in others:
            return NameSecrecy.PLAIN
        if _SECRET_KEYS.intersection(others):
            return NameSecrecy.STRONG
        return NameSecrecy.PLAIN if _ORDINARY_KEYS.intersection(others) else NameSecrecy.WEAK
    if head == "pass":
        return NameSecrecy.PLAIN if _ORDINARY_PASSES.intersection(others) else NameSecrecy.SECRET
    return NameSecrecy.WEAK if head in _HEADS or (head in _SERVICES and not others) else NameSecrecy.PLAIN


def _joined(word: str) -> bool:
    """wandbkey, hftoken."""
    return any(word.endswith(end) and word.removesuffix(end) in _SECRET_KEYS for end in ("key", "keys", "token"))


def is_secret(name: NameSecrecy, text: str) -> bool:
    """True if a text under such a name is a secret because of the name."""
    if name == NameSecrecy.PLAIN or _SPECIAL.fullmatch(text):
        return False
    return name > NameSecrecy.WEAK or not (len(text) <= 32 and _ORDINARY.fullmatch(text) or _HOST.fullmatch(text))


def without_secrets(text: str) -> str:
    """The text with what looks like a secret taken out: by its own shape, or assigned to a secret's name.

    >>> without_secrets("curl -H 'Authorization: Bearer abcdefgh' --api-key=xyz --lr 1e-6")
    "curl -H 'Authorization: [redacted]' --api-key=[redacted] --lr 1e-6"
    """
    for mark, look in _LOOKS:
        if mark in text:
            text = look.sub(REDACTED, text)
    if "asic " in text or "ASIC " in text:
        text = _BASIC.sub(lambda found: found[0].replace(found[1], REDACTED) if _is_login(found[1]) else found[0], text)
    if "://" in text:
        text = _QUERY.sub(_without_query, text)
    return _without_assigned(text) if _STEM.search(text) else text


def _is_login(encoded: str) -> bool:
    try:
        return b":" in base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return False


def _without_query(match: re.Match[str]) -> str:
    is_one = match[1].lower() in _QUERY_NAMES or is_secret(name_of(match[1]), match[2])
    return f"{match[1]}={REDACTED}" if is_one else match[0]


def _without_assigned(text: str) -> str:
    """The text without values assigned to a secret's name. Other values are searched too: they may contain assignments."""
    parts, at = [], 0
    while match := _ASSIGNED.search(text, at):
        name, separator, value = (part or "" for part in (match.group(1, 2, 3) if match[1] else match.group(4, 5, 6)))
        begin, end, kind = match.end() - len(value), match.end(), name_of(name)
        if ":" in separator and value[0] not in "\"'[{\\":  # a header, YAML, or prose
            kind = NameSecrecy.WEAK if kind == NameSecrecy.SECRET and name.isalpha() and name.islower() else kind
            end = max(end, begin + len(_REST.match(text, begin)[0])) if kind == NameSecrecy.STRONG else end  # type: ignore[index]
        is_one = is_secret(kind, value.strip("\\\"'")) and text[begin:end] != REDACTED
        parts += [text[at:begin], REDACTED] if is_one else [text[at:begin]]
        at = end if is_one else begin
    return "".join((*parts, text[at:]))
