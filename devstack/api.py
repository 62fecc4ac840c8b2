"""The service's HTTP API as the stack and the demo call it."""

from __future__ import annotations

from typing import Any

import httpx2

TIMEOUT_SECONDS = 10.0


class ApiFailed(Exception):
    """The API answered with an error or not at all; the message holds what it said."""


class Refused(ApiFailed):
    """The API does not take the request (4xx); the message is what it says about that, for people."""


class Api:
    """A client with one key. No proxy of the environment is used: everything it talks to is on this machine."""

    def __init__(self, base_url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx2.Client(
            base_url=base_url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, follow_redirects=False
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON of a 2xx answer. Raises Refused, or ApiFailed."""
        try:
            answer = self._client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise ApiFailed(f"{method} {path}: {error}") from error
        if answer.is_client_error:
            raise Refused(f"{method} {path}: {answer.status_code} {_sentences(answer)}")
        if not answer.is_success:
            raise ApiFailed(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer.json()

    def accepts_key(self) -> bool:
        """Whether the key is one that the service knows. Raises ApiFailed when it does not answer."""
        try:
            return self._client.get("/api/v1/jobs?limit=1").status_code not in (401, 403)
        except httpx2.HTTPError as error:
            raise ApiFailed(str(error)) from error

    def why_unready(self) -> str:
        """Empty when `/readyz` answers 200, else what it says, or why it does not answer."""
        try:
            answer = self._client.get("/readyz")
        except httpx2.HTTPError as error:
            return str(error) or type(error).__name__
        return "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:1000]}"


def _sentences(answer: httpx2.Response) -> str:
    """The sentences of a problem document (RFC 9457): its detail and those of its errors; else the body as it is."""
    try:
        problem = answer.json()
        found = [problem["detail"], *(error["detail"] for error in problem.get("errors", ()))]
    except (ValueError, LookupError, TypeError, AttributeError):
        return answer.text[:500]
    return " ".join(str(sentence) for sentence in found)
