"""A real object store on loopback: OpenStack Swift with its S3 API, one process per server, on files below a folder.

Swift is what clusters run as an S3 store. It checks signatures, replaces objects whole, lists by page and keeps uploads in parts.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyarrow.fs import S3FileSystem

KEY, SECRET = "test:tester", "hunter22-testing"
_BACK = ("account", "container", "object")
_PATIENCE = 180.0

_RINGS = """
import sys
from swift.common.ring import RingBuilder
root, *pairs = sys.argv[1:]
for kind, port in (pair.split("=") for pair in pairs):
    builder = RingBuilder(1, 1, 0)
    builder.add_dev(dict(id=0, region=1, zone=1, weight=1.0, ip="127.0.0.1", port=int(port), device="disk",
                         replication_ip="127.0.0.1", replication_port=int(port)))
    builder.rebalance()
    builder.get_ring().save(f"{root}/{kind}.ring.gz")
"""
_SERVER = """
import sys, warnings
warnings.simplefilter("ignore")
import eventlet
from swift.common import storage_policy, utils
kind, root = sys.argv[1:]
utils.set_swift_dir(root)
storage_policy.reload_storage_policies()
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(f"{root}/{kind}.conf", f"{kind}-server"))
"""
_PROXY = f"""
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_{KEY.replace(":", "_")} = {SECRET} .admin
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
"""


@dataclass
class Swift:
    """A running store."""

    root: Path
    ports: Mapping[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port of its S3 API."""
        return self.ports["proxy"]

    def start(self, *kinds: str) -> None:
        """Starts these servers, and waits until they answer."""
        for kind in kinds:
            with open(self.root / f"{kind}.log", "ab") as log:
                command = [sys.executable, "-c", _SERVER, kind, str(self.root)]
                self.processes[kind] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + _PATIENCE
        while waiting := [kind for kind in kinds if not _answers(self.ports[kind])]:
            if time.monotonic() > until or any(self.processes[kind].poll() is not None for kind in waiting):
                raise RuntimeError(f"{waiting} did not start: {(self.root / f'{waiting[0]}.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self, kind: str) -> None:
        """As a machine that loses power."""
        self.processes[kind].send_signal(signal.SIGKILL)
        self.processes[kind].wait(_PATIENCE)

    def stop(self) -> None:
        for kind in self.processes:
            self.kill(kind)


@contextmanager
def serving_bucket(name: str) -> Iterator[Swift]:
    """A store with one bucket, while the context is open. Its files are in memory where that can be: Swift waits for the disk."""
    memory = Path("/dev/shm")
    root = Path(mkdtemp(prefix="swift-", dir=memory if memory.is_dir() else None))
    store = started(root)
    try:
        place: dict[str, Any] = {
            "endpoint_override": f"127.0.0.1:{store.port}",
            "scheme": "http",
            "region": "us-east-1",
        }
        S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **place).create_dir(name)
        yield store
    finally:
        store.stop()
        shutil.rmtree(root)


def environment(port: int) -> dict[str, str]:
    """The variables by which a user of S3 reaches a server at this port. A failed request is not tried again."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }


def started(root: Path) -> Swift:
    """A store with no bucket, in an empty folder."""
    ports = {kind: _free_port() for kind in (*_BACK, "proxy")}
    (root / "disks/disk").mkdir(parents=True)
    pairs = [f"{kind}={ports[kind]}" for kind in _BACK]
    subprocess.run([sys.executable, "-W", "ignore", "-c", _RINGS, str(root), *pairs], check=True)
    (root / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = loopback\n")
    for kind, port in ports.items():
        app = f"[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n"
        (root / f"{kind}.conf").write_text(_common(root, port) + (_PROXY if kind == "proxy" else app))
    store = Swift(root, ports)
    try:
        store.start(*ports)
    except BaseException:
        store.stop()
        raise
    return store


def _common(root: Path, port: int) -> str:
    return textwrap.dedent(f"""
        [DEFAULT]
        bind_ip = 127.0.0.1
        bind_port = {port}
        workers = 0
        user = {os.environ.get("USER", "root")}
        swift_dir = {root}
        devices = {root}/disks
        mount_check = false
        fallocate_reserve = 0
        disable_fallocate = true
        recon_cache_path = {root}
        log_level = ERROR
    """)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
