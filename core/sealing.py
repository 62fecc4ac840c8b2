"""Short secrets that the service must read again, kept so that whoever reads the database alone does not have them.

Fernet (AES-128-CBC and HMAC-SHA-256) under a key made from SECRET_KEY, one for each purpose, so that what was sealed
for one cannot be put in the place of another.
"""

from __future__ import annotations

import base64
import functools
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_KEY_BYTES: Final = 32


class SealBroken(Exception):
    """The text was not sealed here for this purpose, or under a SECRET_KEY that is known no more."""


def seal(plain: str, *, purpose: str) -> str:
    """ASCII that `unseal` turns back into `plain`; another one each time."""
    return _keys(purpose).encrypt(plain.encode()).decode("ascii")


def unseal(sealed: str, *, purpose: str) -> str:
    """What was sealed. Reads what was sealed under one of SECRET_KEY_FALLBACKS as well. Raises SealBroken."""
    try:
        return _keys(purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SealBroken from None


def _keys(purpose: str) -> MultiFernet:
    return MultiFernet([_key(secret, purpose) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


@functools.lru_cache(maxsize=16)
def _key(secret: str, purpose: str) -> Fernet:
    derived = HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=f"scraping-jobs {purpose}".encode()).derive(
        secret.encode()
    )
    return Fernet(base64.urlsafe_b64encode(derived))
