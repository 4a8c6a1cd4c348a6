"""The options of the dashboard's server, and which of them are safe.

Every verb of the command line imports this file: it imports no asyncio, which is a quarter of the start of `ratioscope --help`.
"""

from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from ratioscope.errors import ConfigError

from .guard import host_name
from .sign_in import PARAMETER, checked


@dataclass(frozen=True)
class ServerOptions:
    """The address of the dashboard and its visitors."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""
    token: str | None = field(default=None, repr=False)
    """Token that visitors must present, see sign_in.py."""
    hosts: tuple[str, ...] = ()
    """Names of this server in visitors' URLs, beside the loopback names."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The URL to open, with the token if there is one."""
        name = self.hosts[0] if self.hosts and not self.is_loopback else _in_url(self.host)
        return f"http://{name}:{self.port}" + (f"/?{PARAMETER}={self.token}" if self.token else "")


def checked_options(options: ServerOptions) -> ServerOptions:
    """The options if they are safe, because pages show prompts and completions. Else a ConfigError names the missing options."""
    if not options.is_loopback and not (options.token and options.hosts):
        missing = [
            option
            for option, given in (("--token generate", options.token), ("--allow-host NAME", options.hosts))
            if not given
        ]
        raise ConfigError(
            f"--host {options.host} lets others than this machine in, so it needs {' and '.join(missing)} (NAME: what "
            "they type in their browser); safer, from another machine: ssh -L 8501:127.0.0.1:8501 THIS_MACHINE, with "
            "--port 8501 and no --host"
        )
    hosts = []
    for given in options.hosts:
        name = host_name(given if given.count(":") < 2 or given.startswith("[") else f"[{given}]")
        if name is None:
            raise ConfigError(f"--allow-host {given} is no name of a host; wanted one such as gpu-7.example.org")
        hosts.append(name)
    return replace(options, hosts=tuple(hosts), token=None if options.token is None else checked(options.token))


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server bound to this address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
