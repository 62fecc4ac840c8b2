"""What comes out of a batch, for the OpenAPI schema alone; `batch_views.py` writes it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs.serializers import STATUSES, ProblemErrorSerializer


class RowErrorSerializer(serializers.Serializer[Any]):
    """Why a row made no job."""

    code = serializers.CharField(help_text="As the call for a single job would say: `validation_failed`.")
    detail = serializers.CharField()
    errors = ProblemErrorSerializer(  # type: ignore[assignment]  # a field, which the metaclass takes away
        many=True, required=False, help_text="The wrong values; pointers begin at the row."
    )


class BatchItemSerializer(serializers.Serializer[Any]):
    """One row: either `id` and `status`, or `error`."""

    index = serializers.IntegerField(help_text="Place of the row in the body, from 0.")
    id = serializers.UUIDField(required=False)
    status = serializers.ChoiceField(choices=STATUSES, required=False)
    error = RowErrorSerializer(required=False)


class BatchReceiptSerializer(serializers.Serializer[Any]):
    accepted = serializers.IntegerField()
    rejected = serializers.IntegerField()
    items = BatchItemSerializer(many=True, help_text="All rows, in their order.")
