"""What the parsers' errors mean: an answer that stops is told from one that is wrong."""

import contextlib
from collections.abc import Iterator

import h2.events
import h2.exceptions
import httpcore2

from scraper.outcomes import FetchFailed
from scraper.wire import Wire


@contextlib.contextmanager
def protocol_errors(wire: Wire) -> Iterator[None]:
    """Tell an answer that stops from one that is wrong.

    The parser reports both with one class and only words between them. But it judges all it holds before it asks for
    more, so an error after the server's end was read is always about what is missing, and any other about what came.
    """
    try:
        yield
    except httpcore2.LocalProtocolError:
        raise FetchFailed("invalid_request", "The job has a method or header that HTTP cannot carry.") from None
    except httpcore2.RemoteProtocolError:
        if not wire.ended:
            raise FetchFailed("invalid_response", "The server's response is not valid HTTP.") from None
        raise ended_early(wire) from None


@contextlib.contextmanager
def http2_errors(wire: Wire) -> Iterator[None]:
    """The same for HTTP/2, where the request was checked before (RFC 9113): all that is wrong now is the server's."""
    try:
        yield
    except (httpcore2.LocalProtocolError, httpcore2.RemoteProtocolError) as error:
        raise _http2_failure(error.args[0] if error.args else None, wire) from None
    except h2.exceptions.H2Error as error:
        raise _http2_failure(error, wire) from None
    except httpcore2.ConnectionNotAvailable:
        raise FetchFailed("server_disconnected", "The server did not take the request.") from None
    except httpcore2.WriteError:
        raise FetchFailed("connection_reset", "The connection broke before the request was sent.") from None


def _http2_failure(cause: object, wire: Wire) -> FetchFailed:
    if isinstance(cause, h2.events.StreamReset | h2.exceptions.StreamClosedError):
        return FetchFailed("connection_reset", "The server gave the request up before its response was complete.")
    if isinstance(cause, h2.events.ConnectionTerminated):
        return FetchFailed("server_disconnected", "The server ended the connection without a complete response.")
    if isinstance(cause, h2.exceptions.InvalidBodyLengthError) and cause.actual_length < cause.expected_length:
        return FetchFailed("incomplete_body", "The server ended the body before it was complete.")
    if isinstance(cause, h2.exceptions.H2Error) or not wire.ended:
        return FetchFailed("invalid_response", "The server's response is not valid HTTP/2.")
    return ended_early(wire)


def ended_early(wire: Wire) -> FetchFailed:
    """The server closed its side before all had come."""
    if wire.reading_body:
        return FetchFailed("incomplete_body", "The server closed before the body was complete.")
    return FetchFailed("server_disconnected", "The server closed without a complete response.")
