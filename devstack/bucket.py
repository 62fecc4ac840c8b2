"""`python -m devstack.bucket`: creates the bucket of the settings in the environment unless it is there.

A process of its own, since importing boto3 would make every `./dev` command slower.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def ensure_bucket(settings: Mapping[str, str]) -> None:
    """Raises ClientError or BotoCoreError when the endpoint is not to be used."""
    client = boto3.client(
        "s3",
        endpoint_url=settings["S3_ENDPOINT_URL"],
        aws_access_key_id=settings.get("S3_ACCESS_KEY_ID"),
        aws_secret_access_key=settings.get("S3_SECRET_ACCESS_KEY"),
        region_name=settings["S3_REGION"],
        config=Config(s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=10, retries={"max_attempts": 1}),
    )
    try:
        client.head_bucket(Bucket=settings["S3_BUCKET"])
    except ClientError:
        client.create_bucket(Bucket=settings["S3_BUCKET"])


if __name__ == "__main__":
    try:
        ensure_bucket(os.environ)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"S3_ENDPOINT_URL cannot be used with bucket {os.environ['S3_BUCKET']}: {error}")
