"""An HTTP/2 server over TLS that answers by a function, for good or ill."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tests.scraper.test_tls import AUTHORITY, server_context

Headers = list[tuple[bytes, bytes]]


class Http2Conversation:
    """One connection, after a whole request came on `stream`."""

    def __init__(self, connection: ssl.SSLSocket, *, takes_bodies: bool) -> None:
        self._takes_bodies = takes_bodies
        self.socket = connection
        # It has to be able to send what no server should.
        lax = h2.config.H2Configuration(
            client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(lax)
        self.stream = 0
        self.headers: Headers = []
        self.body = b""

    def receive(self) -> list[h2.events.Event]:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError
        events = self.h2.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.body += event.data or b""
                if self._takes_bodies:
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        self.flush()
        return events

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def head(self, status: bytes = b"200", headers: Headers | None = None, *, end: bool = False) -> None:
        self.h2.send_headers(self.stream, [(b":status", status), *(headers or [])], end_stream=end)
        self.flush()

    def data(self, body: bytes, *, end: bool = False) -> None:
        """All of it, at the pace that the client's window allows."""
        while len(body) > (room := min(self.h2.local_flow_control_window(self.stream), 16384)):
            if room:
                self.h2.send_data(self.stream, body[:room])
                body = body[room:]
                self.flush()
            else:
                self.receive()
        self.h2.send_data(self.stream, body, end_stream=end)
        self.flush()

    def end(self) -> None:
        """Close in order: what was sent arrives, and what the client still sends is read."""
        self.socket.shutdown(socket.SHUT_WR)
        while self.socket.recv(65536):
            pass

    def hello(self) -> None:
        self.head()
        self.data(b"hello", end=True)


class Http2Server:
    """Answers each request by `answer` while the `with` block runs."""

    def __init__(self, answer: Callable[[Http2Conversation], None], *, takes_bodies: bool = True) -> None:
        self._answer = answer
        self._takes_bodies = takes_bodies
        self.conversations: list[Http2Conversation] = []
        self._context = server_context(AUTHORITY.issue_cert("127.0.0.1"))
        self._context.set_alpn_protocols(["h2"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def allowed(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.allowed}/case"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, h2.exceptions.H2Error), connection:
            connection.settimeout(10)
            with self._context.wrap_socket(connection, server_side=True) as wrapped:
                conversation = Http2Conversation(wrapped, takes_bodies=self._takes_bodies)
                self.conversations.append(conversation)
                self._talk(conversation)

    def _talk(self, conversation: Http2Conversation) -> None:
        conversation.h2.initiate_connection()
        conversation.flush()
        ended = False
        while not ended:
            for event in conversation.receive():
                if isinstance(event, h2.events.RequestReceived):
                    conversation.stream = event.stream_id or 0
                    conversation.headers = [(bytes(name), bytes(value)) for name, value in event.headers or []]
                ended = ended or isinstance(event, h2.events.StreamEnded)
        self._answer(conversation)
        with contextlib.suppress(TimeoutError):
            while True:
                conversation.receive()
