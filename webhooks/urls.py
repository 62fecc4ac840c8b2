"""Addresses of webhooks, below /api/v1."""

from django.urls import path

from webhooks import views

urlpatterns = [
    path("webhook-endpoints", views.EndpointCollectionView.as_view(), name="webhook-endpoints"),
    path("webhook-endpoints/<uuid:endpoint_id>", views.EndpointView.as_view(), name="webhook-endpoint"),
    path("webhook-endpoints/<uuid:endpoint_id>/rotate-secret", views.RotateSecretView.as_view(), name="rotate-secret"),
    path("webhook-endpoints/<uuid:endpoint_id>/test", views.TestEndpointView.as_view(), name="test-endpoint"),
    path("webhook-endpoints/<uuid:endpoint_id>/replay", views.ReplayRangeView.as_view(), name="replay-range"),
    path("deliveries", views.DeliveryCollectionView.as_view(), name="deliveries"),
    path("deliveries/<uuid:delivery_id>", views.DeliveryView.as_view(), name="delivery"),
    path("deliveries/<uuid:delivery_id>/replay", views.ReplayDeliveryView.as_view(), name="replay-delivery"),
    path("callback-secret", views.CallbackSecretView.as_view(), name="callback-secret"),
    path("callback-secret/rotate", views.RotateCallbackSecretView.as_view(), name="rotate-callback-secret"),
]
