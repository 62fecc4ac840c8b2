"""ISO 8601 with seconds and zone: minutes alone tell nothing about a queue."""

DATETIME_FORMAT = "Y-m-d H:i:s e"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
