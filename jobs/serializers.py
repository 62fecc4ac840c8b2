"""What goes in and out, for the OpenAPI schema alone: values are read by `submission.py` and written by
`representation.py`. `tests/query/test_schema.py` holds the answers against these."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from core.proxies import MAX_URL_LENGTH as MAX_PROXY_URL_LENGTH
from jobs import fields
from jobs.examples import ATTEMPT, EVENT, JOB, RECEIPT, RESULT_LINK, example
from jobs.models import Method
from jobs.representation import TIMINGS
from jobs.states import Outcome, Priority, State
from jobs.submission import EXECUTORS
from jobs.waiting import MEANINGS, WaitingOn

STATUSES = State.values
PRIORITIES = [priority.label for priority in Priority]
OUTCOMES = [*Outcome.values, "running"]
WAITING_ON = [reason.value for reason in WaitingOn]

_SCALARS: list[dict[str, Any]] = [{"type": name} for name in ("string", "number", "boolean", "null")]


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]},
    }
)
class ParamsField(serializers.DictField):
    """Query parameters."""


class Base64Field(serializers.CharField):
    """Bytes in base64."""


class ProblemErrorSerializer(serializers.Serializer[Any]):
    pointer = serializers.CharField(
        help_text="JSON Pointer (RFC 6901) into the request's body, or the parameter's name.", allow_blank=True
    )
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """RFC 9457; every error has this shape."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    instance = serializers.CharField()
    code = serializers.CharField(help_text="Stable, snake_case: what a program looks at.")
    request_id = serializers.CharField()
    errors = ProblemErrorSerializer(  # type: ignore[assignment]  # a field, which the metaclass takes away
        many=True, required=False, help_text="The wrong values, each by its place."
    )


class ClosedSerializer(serializers.Serializer[Any]):
    """A body in which unknown fields are refused."""


class JobSubmissionSerializer(ClosedSerializer):
    """A job to be fetched. A field that is null counts as not given; unknown fields are refused."""

    url = serializers.CharField(
        max_length=8192,
        help_text="http or https, without user name or password, to a public host on port 80, 443 or one "
        "that the operator opened; the fragment is dropped.",
    )
    method = serializers.ChoiceField(choices=Method.values, default="GET", allow_null=True)
    params = ParamsField(
        required=False,
        allow_null=True,
        help_text=f"Added to the URL's query; a list repeats its name; at most {fields.MAX_PARAMS} values.",
    )
    headers = serializers.DictField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        allow_null=True,
        help_text=f"At most {fields.MAX_HEADERS} and {fields.MAX_HEADER_BYTES} bytes, latin-1. The service sets Host, "
        "Content-Length, Transfer-Encoding, Connection, Expect, Upgrade, TE, Trailer and Proxy-* itself.",
    )
    body = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, help_text="Sent as UTF-8. Not with GET or HEAD."
    )
    body_base64 = Base64Field(
        required=False, allow_null=True, allow_blank=True, help_text="Bytes, instead of `body` (RFC 4648 section 4)."
    )
    priority = serializers.ChoiceField(choices=PRIORITIES, default="normal", allow_null=True)
    callback_url = serializers.CharField(required=False, allow_null=True, max_length=8192)
    tags = serializers.ListField(
        child=serializers.CharField(min_length=1, max_length=fields.MAX_TAG_LENGTH),
        max_length=fields.MAX_TAGS,
        required=False,
        allow_null=True,
    )
    run_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        help_text="With a zone, at most 366 days ahead; the job waits until then, a past time is now.",
    )
    deadline_seconds = serializers.IntegerField(
        min_value=1, max_value=300, required=False, allow_null=True, help_text="For each attempt as a whole."
    )
    max_attempts = serializers.IntegerField(min_value=1, max_value=10, required=False, allow_null=True)
    max_bytes = serializers.IntegerField(
        min_value=1,
        required=False,
        allow_null=True,
        help_text="Most bytes of the response; at most the service's limit.",
    )
    retry_unsafe = serializers.BooleanField(
        default=False,
        allow_null=True,
        help_text="Repeat a POST or PATCH even when a byte of the request may have reached the target.",
    )
    executor = serializers.ChoiceField(choices=list(EXECUTORS), default="http", allow_null=True)
    follow_redirects = serializers.BooleanField(default=True, allow_null=True, help_text="Up to 10.")
    respect_robots = serializers.BooleanField(
        required=False,
        allow_null=True,
        help_text="Heed robots.txt (RFC 9309), of each host on the way, for the product token `scraping-jobs`. Left "
        "out, the tenant's policy counts, which is not to heed it unless it was set so.",
    )
    proxy = serializers.CharField(
        required=False,
        allow_null=True,
        write_only=True,
        max_length=MAX_PROXY_URL_LENGTH,
        help_text="`http://`, `https://` or `socks5://user:password@host:port`, instead of the tenant's proxy. Kept "
        "sealed and never shown; the target is resolved and checked by the service first.",
    )


class ReceiptLinksSerializer(serializers.Serializer[Any]):
    """Absolute paths; join them with the address that was called."""

    self = serializers.CharField()
    result = serializers.CharField()
    attempts = serializers.CharField()
    cancel = serializers.CharField()


@extend_schema_serializer(examples=example("Queued", RECEIPT))
class ReceiptSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=STATUSES, help_text="Always `queued`, also when the receipt is replayed.")
    created_at = serializers.DateTimeField()
    links = ReceiptLinksSerializer()


class JobLinksSerializer(ReceiptLinksSerializer):
    """Absolute paths; join them with the address that was called."""

    events = serializers.CharField()


class JobErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="As `connect_timeout` or `http_404`.")
    detail = serializers.CharField(allow_blank=True)
    http_status = serializers.IntegerField(allow_null=True)
    at = serializers.DateTimeField(allow_null=True)


class JobResultSerializer(serializers.Serializer[Any]):
    bytes = serializers.IntegerField()
    content_type = serializers.CharField(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True)
    sha256 = serializers.CharField(allow_blank=True, help_text="Of the stored bytes, in hexadecimal.")
    final_url = serializers.CharField(allow_blank=True, help_text="After redirects.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="End of retention.")


@extend_schema_serializer(examples=example("Succeeded at the second attempt", JOB))
class JobSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=STATUSES)
    priority = serializers.ChoiceField(choices=PRIORITIES)
    url = serializers.CharField()
    method = serializers.ChoiceField(choices=Method.values)
    host = serializers.CharField(help_text="Lower-cased, IDNA, with port.")
    tags = serializers.ListField(child=serializers.CharField())
    attempts = serializers.IntegerField(help_text="Used up, the running one included.")
    max_attempts = serializers.IntegerField()
    last_error = JobErrorSerializer(allow_null=True)
    waiting_on = serializers.ChoiceField(
        choices=WAITING_ON,
        allow_null=True,
        help_text="Why a queued job is not running; null in every other state. "
        + "; ".join(f"`{reason}`: {meaning}" for reason, meaning in MEANINGS.items())
        + ".",
    )
    eligible_at = serializers.DateTimeField(
        allow_null=True,
        help_text="It does not start before this time: `run_at`, the wait before another attempt, or the end of its "
        "host's block, whichever is last. Null while nobody can know it: the tenant or the host is paused.",
    )
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True, help_text="Start of the first attempt.")
    finished_at = serializers.DateTimeField(allow_null=True)
    result = JobResultSerializer(allow_null=True)
    links = JobLinksSerializer()


@extend_schema_serializer(examples=example("The last page", {"items": [JOB], "next_cursor": None}))
class JobPageSerializer(serializers.Serializer[Any]):
    items = JobSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="Null on the last page.")


class AttemptErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    detail = serializers.CharField(allow_blank=True)


class TimingsSerializer(serializers.Serializer[Any]):
    """Seconds; null for a part that did not happen."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name: serializers.FloatField(allow_null=True) for name in TIMINGS}


class RedirectSerializer(serializers.Serializer[Any]):
    url = serializers.CharField()
    status = serializers.IntegerField()


class ConnectionSerializer(serializers.Serializer[Any]):
    """Of the last request of the attempt; null for what did not come about."""

    remote_address = serializers.CharField(
        allow_null=True,
        help_text="That was connected to; told of public addresses, and of one that the URL spells out.",
    )
    http_version = serializers.CharField(allow_null=True, help_text="As `HTTP/1.1`, in the answer.")
    tls_version = serializers.CharField(allow_null=True, help_text="As `TLSv1.3`; null without TLS.")


class CharsetSerializer(serializers.Serializer[Any]):
    """What each place says of the body's character set, in lower case, unchecked; the body is stored as it came."""

    bom = serializers.CharField(allow_null=True, help_text="By a byte order mark; it outweighs the others.")
    header = serializers.CharField(allow_null=True, help_text="By Content-Type.")
    meta = serializers.CharField(
        allow_null=True, help_text="By a meta element or an XML declaration in the first 1,024 bytes."
    )


@extend_schema_serializer(examples=example("To be tried again", ATTEMPT))
class AttemptSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField(
        help_text="Counts the attempts used up. Begins anew when the job is retried or redriven, and is given again "
        "after a worker's shutdown, which uses none up."
    )
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    error = AttemptErrorSerializer(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True)
    worker = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    timings = TimingsSerializer()
    redirects = RedirectSerializer(many=True)
    response_headers = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField(allow_blank=True), min_length=2, max_length=2),
        help_text="[name, value] pairs in the order in which they came.",
    )
    connection = ConnectionSerializer()
    charset = CharsetSerializer()
    body_snippet = serializers.CharField(allow_blank=True, help_text="The beginning of the body, as text.")


@extend_schema_serializer(examples=example("Claimed by a worker", EVENT))
class JobEventSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {  # `from` cannot be an attribute's name
            "seq": serializers.IntegerField(help_text="Grows with time."),
            "at": serializers.DateTimeField(),
            "from": serializers.ChoiceField(choices=STATUSES, allow_null=True, help_text="Null for the first."),
            "to": serializers.ChoiceField(choices=STATUSES),
            "reason": serializers.CharField(),
            "attempt": serializers.IntegerField(),
        }


@extend_schema_serializer(examples=example("For a quarter of an hour", RESULT_LINK))
class ResultLinkSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(help_text="Downloads the stored bytes; needs no key.")
    expires_at = serializers.DateTimeField(help_text="When the link stops working; ask again for a new one.")
