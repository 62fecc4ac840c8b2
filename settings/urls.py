"""Every address of the web role."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from core import views
from core.renderers import PlainSchemaRenderer, SchemaRenderer

API = "api/v1/"
SCHEMA = [SchemaRenderer, PlainSchemaRenderer]

PROBES: list[URLPattern | URLResolver] = [
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("metrics", views.metrics),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.home),
    path("favicon.ico", views.favicon),
    *PROBES,
    path(API, include(PROBES)),  # for those who route only this prefix to the service
    path("problems", views.problem_types),
    path("problems/<str:code>", views.problem_type),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    # People who are no staff cannot pass the admin's login; the browsable API links to this one.
    path("accounts/", include("rest_framework.urls")),
    path(f"{API}schema", SpectacularJSONAPIView.as_view(renderer_classes=SCHEMA), name="schema"),
    path(f"{API}docs", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path(API, include("query.urls")),
    path(API, include("webhooks.urls")),
]
