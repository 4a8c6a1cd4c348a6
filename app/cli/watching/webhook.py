"""Posts JSON to one address: encrypted, to a public machine, without redirects, within five seconds in all.

The name is resolved once, and the connection goes to the address that was checked, so that a name server cannot move it later.
"""

import ipaddress
import json
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from ratioscope.errors import ConfigError
from ratioscope.version import __version__

SECONDS = 5.0
"""Time limit of a post, with the look-up of the name."""
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+(?:%\w+)?", re.ASCII)
"""A name, or an address."""
_LOCAL_NAMES = ("localhost", "ip6-localhost")
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_UNICAST = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses that are given out (RFC 4291, section 2.4). Python takes every other one that has no use for global."""
_CARRYING = tuple(
    (ipaddress.IPv6Network(network), bits)
    for network, bits in (
        ("::ffff:0:0/96", 0),  # IPv4-mapped, RFC 4291
        ("64:ff9b::/96", 0),  # NAT64, RFC 6052; 64:ff9b:1::/48 (RFC 8215) is for a network's own use
        ("2002::/16", 80),  # 6to4, RFC 3056
    )
)
"""IPv6 networks that lead to an IPv4 address, and the number of bits after it."""
_KEPT_APART = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments, RFC 6890
        "192.88.99.0/24",  # 6to4 relays, RFC 7526
        "2001::/23",  # protocol assignments, RFC 2928; Teredo among them, RFC 4380
        "3fff::/20",  # documentation, RFC 9637
    )
)
"""Networks that some versions of Python take for global."""


@dataclass(frozen=True)
class Webhook:
    """The place that is posted to. Its path may be a secret, and is never shown."""

    host: str
    port: int
    """The TCP port."""
    target: str
    """Path and query."""
    encrypted: bool
    """True for https."""
    allow_private: bool = False
    """True if the host may be on a private network."""

    @property
    def is_local(self) -> bool:
        """True if the host was named as this machine."""
        if self.host in _LOCAL_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def webhook_of(url: str, *, allow_private: bool = False) -> Webhook:
    """The webhook of a URL. ConfigError unless it is https, or http to this machine. The error does not show the URL's path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"--webhook: the URL cannot be read; {_WANTED}") from error
    if any(character.isspace() or ord(character) < 32 or ord(character) > 126 for character in url):
        raise ConfigError(f"--webhook: the URL has a blank or a foreign character; {_WANTED}")
    if host and not _HOST.fullmatch(host):  # a URL with another sign after the host: what follows may be its path
        raise ConfigError(f"--webhook: the host has a character that no host has; {_WANTED}")
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None:
        raise ConfigError(f"--webhook: found {parts.scheme or 'no scheme'} and host {host or 'missing'}; {_WANTED}")
    encrypted = parts.scheme == "https"
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    made = Webhook(host, port or (443 if encrypted else 80), target, encrypted, allow_private)
    if not encrypted and not made.is_local:
        raise ConfigError(f"--webhook: http to {host} is not encrypted; wanted https, or http to localhost")
    return made


_WANTED = "wanted https://HOST/PATH, without a user name"


def failure_of_post(webhook: Webhook, body: Mapping[str, Any], seconds: float = SECONDS) -> str:
    """Posts the JSON; returns why it failed, in words, or an empty text. It never raises for a failure."""
    post = _Post(webhook, json.dumps(body, allow_nan=False).encode())
    thread = threading.Thread(target=post.run, daemon=True, name="ratioscope-webhook")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        post.close()
        return f"--webhook: {webhook.host} did not answer within {seconds:g} s"
    return f"--webhook: {post.failure}" if post.failure else ""


class _Post:
    """One post, on a thread of its own: a name server or a slow answer cannot hold the watch."""

    def __init__(self, webhook: Webhook, body: bytes) -> None:
        self._webhook, self._body = webhook, body
        self._connection: HTTPConnection | None = None
        self._is_given_up = False
        self.failure = ""

    def run(self) -> None:
        """Posts, and keeps the words of a failure."""
        host = self._webhook.host
        try:
            address = _judged(self._webhook)
            if isinstance(address, str):
                self.failure = address
                return
            status = self._status(address)
            self.failure = "" if 200 <= status < 300 else f"{host} answered {status}; redirects are not followed"
        except (OSError, HTTPException, ValueError) as error:
            self.failure = f"{host} cannot be reached: {type(error).__name__}"

    def close(self) -> None:
        """Gives the post up."""
        self._is_given_up = True
        if self._connection is not None and self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread, as closing alone does not

    def _status(self, address: IPAddress) -> int:
        webhook = self._webhook
        opened = socket.create_connection((str(address), webhook.port), timeout=SECONDS)
        if webhook.encrypted:
            opened = ssl.create_default_context().wrap_socket(opened, server_hostname=webhook.host)
        self._connection = HTTPConnection(webhook.host, webhook.port, timeout=SECONDS)
        self._connection.sock = opened
        headers = {"Content-Type": "application/json", "User-Agent": f"ratioscope/{__version__}", "Connection": "close"}
        try:
            if self._is_given_up:
                return 0
            self._connection.request("POST", webhook.target, self._body, headers)
            return self._connection.getresponse().status
        finally:
            self._connection.close()


def _judged(webhook: Webhook) -> IPAddress | str:
    """The address to connect to, or why none of the host's may be used."""
    found = socket.getaddrinfo(webhook.host, webhook.port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
    if webhook.is_local:
        return next((a for a in addresses if a.is_loopback), f"{webhook.host} is not this machine")
    refused = [address for address in addresses if not (webhook.allow_private or is_public(address))]
    if refused or not addresses:
        return f"{webhook.host} is no public machine; --allow-private posts to a private one"
    return addresses[0]


def is_public(address: IPAddress) -> bool:
    """True if the address is of the public internet. An IPv6 address that leads to an IPv4 address is judged as that one."""
    for network, bits in _CARRYING:
        if address in network:
            return is_public(ipaddress.IPv4Address(int(address) >> bits & 0xFFFFFFFF))
    if address.version == 6 and address not in _UNICAST:
        return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _KEPT_APART)
