"""Endpoints, deliveries and the secret of callbacks, as callers handle them."""

from __future__ import annotations

import threading
import time
import uuid
from http import HTTPStatus
from typing import Any, Final

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import NotFound
from core.pagination import Cursors, InvalidCursor
from core.views import ServiceView
from jobs import parameters
from jobs.schema import WITH_BODY, problems
from tenants.authentication import tenant_of
from webhooks import endpoint_fields, endpoints, replays
from webhooks.endpoints import TooManyEndpoints
from webhooks.events import Status
from webhooks.models import Delivery
from webhooks.replays import MAX_REPLAYED, EndpointDisabled
from webhooks.representation import (
    DELIVERIES_PATH,
    ENDPOINTS_PATH,
    callback_secret_document,
    delivery_document,
    endpoint_document,
    whole_delivery_document,
)
from webhooks.serializers import (
    DELIVERY_STATUSES,
    CallbackSecretSerializer,
    CallbackSecretWithSecretSerializer,
    DeliveryPageSerializer,
    EndpointChangesSerializer,
    EndpointListSerializer,
    EndpointSerializer,
    EndpointWithSecretSerializer,
    NewEndpointSerializer,
    OverlapSerializer,
    ReplayedSerializer,
    ReplayRangeSerializer,
    WholeDeliverySerializer,
)

TEST_WAIT_SECONDS: Final = 3.0
TEST_POLL_SECONDS: Final = 0.1
TESTS_WAITED_FOR: Final = 2
"""At once in one process: a receiver that hangs must not hold the threads that take jobs in."""
NO_STORE: Final = {"Cache-Control": "no-store"}
TAGS: Final = ["webhooks"]

_waited_for = threading.BoundedSemaphore(TESTS_WAITED_FOR)


def _optional_body(request: Request) -> object:
    """The body, an empty object where there is none."""
    return request.data if int(request.META.get("CONTENT_LENGTH") or 0) > 0 else {}


class EndpointCollectionView(ServiceView):
    """Register an endpoint, and list the tenant's own."""

    name = "Webhook endpoints"

    @extend_schema(
        operation_id="list_webhook_endpoints",
        summary="List endpoints",
        description="The oldest first; there are never many.",
        tags=TAGS,
        responses={200: EndpointListSerializer, **problems()},
    )
    def get(self, request: Request) -> Response:
        return Response({"items": [endpoint_document(one) for one in endpoints.living(tenant_of(request).pk)]})

    @extend_schema(
        operation_id="register_webhook_endpoint",
        summary="Register an endpoint",
        description="It is told of each of the tenant's jobs that ends from now on. The answer shows its secret; it "
        "is not shown again.",
        tags=TAGS,
        parameters=[OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])],
        request=NewEndpointSerializer,
        responses={201: EndpointWithSecretSerializer, **problems(TooManyEndpoints, *WITH_BODY)},
    )
    def post(self, request: Request) -> Response:
        values = endpoint_fields.read_new_endpoint(request.data)
        endpoint, secret = endpoints.register(tenant_of(request), values)
        headers = {"Location": f"{ENDPOINTS_PATH}/{endpoint.pk}", **NO_STORE}
        return Response(endpoint_document(endpoint, secret), status=HTTPStatus.CREATED, headers=headers)


class EndpointView(ServiceView):
    """One endpoint."""

    name = "Webhook endpoint"

    @extend_schema(
        operation_id="get_webhook_endpoint",
        summary="Read an endpoint",
        tags=TAGS,
        responses={200: EndpointSerializer, **problems(NotFound)},
    )
    def get(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        return Response(endpoint_document(endpoints.find(tenant_of(request).pk, endpoint_id)))

    @extend_schema(
        operation_id="change_webhook_endpoint",
        summary="Change an endpoint",
        description="What is left out, or null, stays. Deliveries that are under way go to the new address.",
        tags=TAGS,
        request=EndpointChangesSerializer,
        responses={200: EndpointSerializer, **problems(NotFound, *WITH_BODY)},
    )
    def patch(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        endpoint = endpoints.find(tenant_of(request).pk, endpoint_id)
        return Response(endpoint_document(endpoints.change(endpoint, endpoint_fields.read_changes(request.data))))

    @extend_schema(
        operation_id="delete_webhook_endpoint",
        summary="Delete an endpoint",
        description="Nothing is sent to it any more; its deliveries are kept as long as all others.",
        tags=TAGS,
        responses={204: OpenApiResponse(description="It is gone."), **problems(NotFound)},
    )
    def delete(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        endpoints.delete(endpoints.find(tenant_of(request).pk, endpoint_id))
        return Response(status=HTTPStatus.NO_CONTENT)


class RotateSecretView(ServiceView):
    """Give an endpoint a new secret."""

    name = "Rotate secret"

    @extend_schema(
        operation_id="rotate_webhook_secret",
        summary="Rotate an endpoint's secret",
        description="Both secrets sign until the overlap is over, so that no delivery is refused meanwhile. The answer "
        "shows the new one; it is not shown again. The body may be left out.",
        tags=TAGS,
        request=OverlapSerializer,
        responses={200: EndpointWithSecretSerializer, **problems(NotFound, *WITH_BODY)},
    )
    def post(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        endpoint = endpoints.find(tenant_of(request).pk, endpoint_id)
        overlap = endpoint_fields.read_overlap(_optional_body(request))
        return Response(endpoint_document(*endpoints.rotate_secret(endpoint, overlap)), headers=NO_STORE)


class TestEndpointView(ServiceView):
    """Send an endpoint a test."""

    name = "Test"

    @extend_schema(
        operation_id="test_webhook_endpoint",
        summary="Send a test",
        description="A delivery of the type `webhook.test`, signed as all are, is sent at once and tried once; a "
        "disabled endpoint gets it too, and its outcome counts for nothing. 200 tells how it went; 202 that this is "
        f"not known after {TEST_WAIT_SECONDS:g} s, and the delivery will tell.",
        tags=TAGS,
        request=None,
        responses={200: WholeDeliverySerializer, 202: WholeDeliverySerializer, **problems(NotFound)},
    )
    def post(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        delivery = endpoints.send_test(endpoints.find(tenant_of(request).pk, endpoint_id))
        _wait(delivery)
        status = HTTPStatus.ACCEPTED if delivery.status == Status.PENDING else HTTPStatus.OK
        return Response(_whole(delivery), status=status, headers={"Location": f"{DELIVERIES_PATH}/{delivery.pk}"})


def _wait(delivery: Delivery) -> None:
    """Until it has ended, for a moment at most, and not at all where others wait already."""
    if _waited_for.acquire(blocking=False):
        try:
            deadline = time.monotonic() + TEST_WAIT_SECONDS
            while delivery.status == Status.PENDING and time.monotonic() < deadline:
                time.sleep(TEST_POLL_SECONDS)
                delivery.refresh_from_db()
        finally:
            _waited_for.release()
    delivery.refresh_from_db()


def _whole(delivery: Delivery) -> dict[str, Any]:
    return whole_delivery_document(delivery, delivery.try_set.order_by("number"))


class ReplayRangeView(ServiceView):
    """Send an endpoint's deliveries of a time range anew."""

    name = "Replay"

    @extend_schema(
        operation_id="replay_webhook_deliveries",
        summary="Replay a time range",
        description=f"Those that failed, or with `status` those that were delivered; {MAX_REPLAYED:,} at most by one "
        "call. Each keeps its `webhook-id` and body.",
        tags=TAGS,
        request=ReplayRangeSerializer,
        responses={202: ReplayedSerializer, **problems(NotFound, EndpointDisabled, *WITH_BODY)},
    )
    def post(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        endpoint = endpoints.find(tenant_of(request).pk, endpoint_id)
        chosen = endpoint_fields.read_replay_range(request.data)
        if endpoint.disabled_at is not None:
            raise EndpointDisabled
        replayed = replays.replay_range(endpoint.pk, chosen)
        return Response({"replayed": replayed, "more": replayed == MAX_REPLAYED}, status=HTTPStatus.ACCEPTED)


def _endpoint_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError("Must be an endpoint's id.") from None


_FILTERS: Final[dict[str, parameters.Reader]] = {
    "endpoint": _endpoint_id,
    "status": parameters.one_of({status.value: status for status in Status}),
}


class DeliveryCollectionView(ServiceView):
    """The tenant's deliveries."""

    name = "Deliveries"

    @extend_schema(
        operation_id="list_webhook_deliveries",
        summary="List deliveries",
        description="Newest first, to endpoints and callbacks. Follow `next_cursor` until it is null.",
        tags=TAGS,
        parameters=[
            OpenApiParameter("endpoint", {"type": "string", "format": "uuid"}),
            OpenApiParameter("status", str, enum=DELIVERY_STATUSES),
            OpenApiParameter("limit", parameters.LIMIT),
            OpenApiParameter("cursor", parameters.CURSOR, description="`next_cursor` of the page before."),
        ],
        responses={200: DeliveryPageSerializer, **problems(parameters.InvalidParameter, InvalidCursor)},
    )
    def get(self, request: Request) -> Response:
        values = parameters.read_parameters(request.query_params, _FILTERS | parameters.PAGE)
        filters = {name: value for name, value in values.items() if name in _FILTERS}
        return Response(
            _page(tenant_of(request).pk, filters, values.get("cursor"), values.get("limit", parameters.DEFAULT_LIMIT))
        )


def _page(tenant_id: uuid.UUID, filters: dict[str, Any], cursor: str | None, limit: int) -> dict[str, Any]:
    cursors = Cursors(tenant_id, {"list": "deliveries", **filters})
    rows = Delivery.objects.filter(tenant_id=tenant_id, **filters).select_related("endpoint").defer("body")
    if cursor is not None:
        rows = rows.filter(pk__lt=cursors.read(cursor))
    seen = list(rows.order_by("-id")[: limit + 1])  # one more tells whether more follow
    page = seen[:limit]
    return {
        "items": [delivery_document(one) for one in page],
        "next_cursor": cursors.write(page[-1].pk) if len(seen) > limit else None,
    }


class DeliveryView(ServiceView):
    """One delivery with its tries."""

    name = "Delivery"

    @extend_schema(
        operation_id="get_webhook_delivery",
        summary="Read a delivery",
        tags=TAGS,
        responses={200: WholeDeliverySerializer, **problems(NotFound)},
    )
    def get(self, request: Request, delivery_id: uuid.UUID) -> Response:
        return Response(_whole(replays.find(tenant_of(request).pk, delivery_id)))


class ReplayDeliveryView(ServiceView):
    """Send a delivery anew."""

    name = "Replay"

    @extend_schema(
        operation_id="replay_webhook_delivery",
        summary="Replay a delivery",
        description="It is due at once and has its whole schedule again; `webhook-id` and body stay.",
        tags=TAGS,
        request=None,
        responses={202: WholeDeliverySerializer, **problems(NotFound, EndpointDisabled)},
    )
    def post(self, request: Request, delivery_id: uuid.UUID) -> Response:
        delivery = replays.replay(replays.find(tenant_of(request).pk, delivery_id))
        return Response(_whole(delivery), status=HTTPStatus.ACCEPTED)


class CallbackSecretView(ServiceView):
    """What signs the callbacks of the tenant's jobs."""

    name = "Callback secret"

    @extend_schema(
        operation_id="get_callback_secret",
        summary="Read about the secret of callbacks",
        description="When it was made and changed; the secret itself is shown when it is rotated.",
        tags=TAGS,
        responses={200: CallbackSecretSerializer, **problems()},
    )
    def get(self, request: Request) -> Response:
        return Response(callback_secret_document(endpoints.callback_secret(tenant_of(request).pk)))


class RotateCallbackSecretView(ServiceView):
    """Change what signs the callbacks."""

    name = "Rotate callback secret"

    @extend_schema(
        operation_id="rotate_callback_secret",
        summary="Rotate the secret of callbacks",
        description="As for an endpoint. A tenant gets to know its first secret in this way too.",
        tags=TAGS,
        request=OverlapSerializer,
        responses={200: CallbackSecretWithSecretSerializer, **problems(*WITH_BODY)},
    )
    def post(self, request: Request) -> Response:
        overlap = endpoint_fields.read_overlap(_optional_body(request))
        kept, secret = endpoints.rotate_callback_secret(tenant_of(request).pk, overlap)
        return Response(callback_secret_document(kept, secret), headers=NO_STORE)
