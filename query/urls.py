"""Addresses of the read side, below /api/v1."""

from django.urls import path

from jobs.batch_views import SubmitBatchView
from query import views

urlpatterns = [
    path("jobs", views.JobCollectionView.as_view(), name="jobs"),
    path("jobs/batch", SubmitBatchView.as_view(), name="batch"),
    path("jobs/<uuid:job_id>", views.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/cancel", views.JobCancelView.as_view(), name="job-cancel"),
    path("jobs/<uuid:job_id>/retry", views.JobRetryView.as_view(), name="job-retry"),
    path("jobs/<uuid:job_id>/attempts", views.JobAttemptsView.as_view(), name="job-attempts"),
    path("jobs/<uuid:job_id>/events", views.JobEventsView.as_view(), name="job-events"),
    path("jobs/<uuid:job_id>/result", views.JobResultView.as_view(), name="job-result"),
]
