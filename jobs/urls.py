"""Addresses of the command side, below /api/v1. `POST /jobs` stands in `query.urls`, beside the list."""

from django.urls import path

from jobs.views import CancelJobView, RetryJobView

urlpatterns = [
    path("jobs/<uuid:job_id>/cancel", CancelJobView.as_view(), name="job-cancel"),
    path("jobs/<uuid:job_id>/retry", RetryJobView.as_view(), name="job-retry"),
]
