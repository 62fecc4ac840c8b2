"""What goes in and out, for the OpenAPI schema alone: values are read by `endpoint_fields.py` and written by
`representation.py`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework import serializers

from jobs.examples import example
from jobs.serializers import ClosedSerializer
from webhooks import examples
from webhooks.endpoint_fields import MAX_DESCRIPTION, REPLAYABLE
from webhooks.events import EventType, Status
from webhooks.signing import MAX_OVERLAP

DELIVERY_STATUSES = Status.values
EVENT_TYPES = EventType.values

_URL_HELP = "http or https, to a public host on port 80, 443 or one that the operator opened."


def _sent(name: str, value: dict[str, Any]) -> list[OpenApiExample]:
    return [OpenApiExample(name, value=value, request_only=True)]


@extend_schema_serializer(examples=_sent("An address", examples.NEW_ENDPOINT))
class NewEndpointSerializer(ClosedSerializer):
    url = serializers.CharField(max_length=8192, help_text=_URL_HELP)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=MAX_DESCRIPTION)


@extend_schema_serializer(examples=_sent("Begin anew", examples.SWITCH_ON))
class EndpointChangesSerializer(ClosedSerializer):
    url = serializers.CharField(required=False, allow_null=True, max_length=8192, help_text=_URL_HELP)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=MAX_DESCRIPTION)
    enabled = serializers.BooleanField(
        required=False, allow_null=True, help_text="True begins anew: what it failed before is forgotten."
    )


class EndpointLinksSerializer(serializers.Serializer[Any]):
    self = serializers.CharField()
    deliveries = serializers.CharField()
    test = serializers.CharField()


@extend_schema_serializer(examples=example("In use", examples.ENDPOINT))
class EndpointSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    url = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    enabled = serializers.BooleanField()
    disabled_at = serializers.DateTimeField(allow_null=True)
    disabled_reason = serializers.CharField(allow_null=True, help_text="Why nothing is sent to it.")
    failing_since = serializers.DateTimeField(
        allow_null=True, help_text="The first failure after the last success. Five days later it is disabled."
    )
    previous_secret_expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Until then the secret before signs as well."
    )
    created_at = serializers.DateTimeField()
    links = EndpointLinksSerializer()


@extend_schema_serializer(examples=example("With its secret", examples.ENDPOINT_WITH_SECRET))
class EndpointWithSecretSerializer(EndpointSerializer):
    secret = serializers.CharField(help_text="`whsec_...`, shown this once.")


@extend_schema_serializer(examples=example("One endpoint", examples.ENDPOINTS))
class EndpointListSerializer(serializers.Serializer[Any]):
    items = EndpointSerializer(many=True)


@extend_schema_serializer(examples=_sent("An hour", examples.OVERLAP))
class OverlapSerializer(ClosedSerializer):
    overlap_seconds = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=int(MAX_OVERLAP.total_seconds()),
        help_text="For how long the secret before signs as well; left out, a day. 0 ends it at once.",
    )


@extend_schema_serializer(examples=example("Never rotated", examples.CALLBACK_SECRET))
class CallbackSecretSerializer(serializers.Serializer[Any]):
    created_at = serializers.DateTimeField()
    rotated_at = serializers.DateTimeField(allow_null=True)
    previous_secret_expires_at = serializers.DateTimeField(allow_null=True)


@extend_schema_serializer(examples=example("Rotated", examples.CALLBACK_SECRET_WITH_SECRET))
class CallbackSecretWithSecretSerializer(CallbackSecretSerializer):
    secret = serializers.CharField(help_text="`whsec_...`, shown this once.")


@extend_schema_serializer(examples=_sent("Two hours", examples.REPLAY_RANGE))
class ReplayRangeSerializer(ClosedSerializer):
    since = serializers.DateTimeField(help_text="Deliveries made from then on.")
    until = serializers.DateTimeField(required=False, allow_null=True, help_text="And before; left out: up to now.")
    status = serializers.ChoiceField(choices=list(REPLAYABLE), default="failed", allow_null=True)


@extend_schema_serializer(examples=example("All of them", examples.REPLAYED))
class ReplayedSerializer(serializers.Serializer[Any]):
    replayed = serializers.IntegerField(help_text="How many are sent anew, the oldest first.")
    more = serializers.BooleanField(help_text="Whether the same call again would find more.")


class DeliveryErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    detail = serializers.CharField()


class DeliveryLinksSerializer(serializers.Serializer[Any]):
    self = serializers.CharField()
    replay = serializers.CharField()


class DeliverySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="The `webhook-id`: the same on every try and replay.")
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    status = serializers.ChoiceField(choices=DELIVERY_STATUSES)
    endpoint = serializers.UUIDField(allow_null=True, help_text="Null for a job's callback_url.")
    url = serializers.CharField(help_text="Where it goes; of an endpoint's, as it is now.")
    job = serializers.UUIDField(allow_null=True)
    tries = serializers.IntegerField()
    next_try_at = serializers.DateTimeField(
        allow_null=True, help_text="Of one that is under way: when it counts as lost."
    )
    last_status_code = serializers.IntegerField(allow_null=True)
    last_error = DeliveryErrorSerializer(allow_null=True)
    created_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    links = DeliveryLinksSerializer()


class TrySerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    status_code = serializers.IntegerField(allow_null=True)
    latency_ms = serializers.IntegerField()
    error = DeliveryErrorSerializer(allow_null=True)
    answer = serializers.CharField(allow_blank=True, help_text="The first 2 KiB of the answer's body, as text.")


@extend_schema_serializer(examples=example("Delivered at once", examples.WHOLE_DELIVERY))
class WholeDeliverySerializer(DeliverySerializer):
    body = serializers.CharField(help_text="As it is sent: JSON.")
    try_log = TrySerializer(many=True, help_text="Each try, the oldest first.")


@extend_schema_serializer(examples=example("The last page", examples.DELIVERIES))
class DeliveryPageSerializer(serializers.Serializer[Any]):
    items = DeliverySerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
