"""Addresses of the read side, below /api/v1."""

from django.urls import path

from jobs.batch_views import SubmitBatchView
from jobs.plan_views import PlanView
from query import views
from query.feed import FeedView
from query.stats import StatsView

urlpatterns = [
    path("jobs", views.JobCollectionView.as_view(), name="jobs"),
    path("jobs/plan", PlanView.as_view(), name="plan"),
    path("jobs/batch", SubmitBatchView.as_view(), name="batch"),
    path("jobs/<uuid:job_id>", views.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/cancel", views.JobCancelView.as_view(), name="job-cancel"),
    path("jobs/<uuid:job_id>/retry", views.JobRetryView.as_view(), name="job-retry"),
    path("jobs/<uuid:job_id>/attempts", views.JobAttemptsView.as_view(), name="job-attempts"),
    path("jobs/<uuid:job_id>/events", views.JobEventsView.as_view(), name="job-events"),
    path("jobs/<uuid:job_id>/result", views.JobResultView.as_view(), name="job-result"),
    path("events", FeedView.as_view(), name="feed"),
    path("stats", StatsView.as_view(), name="stats"),
]
