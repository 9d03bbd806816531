"""HTTP/1.1 with a bound for what comes before the body: uvicorn's protocol has none, and collects it all in memory."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 256 << 10
"""Request line and headers. 32 metadata items of full length, all percent-encoded, have 110 KiB."""


class HeadTooLong(ValueError):  # noqa: N818 - never leaves this module: the parser makes an error of its own of it
    """Stops the parser."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol that answers 431 and hangs up when a head is too long."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_head = True
        self._head_bytes = 0  # of what is parsed
        self._raw_bytes = 0  # received while the head is not complete: one header may have no end
        self._too_long = False

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        if self._in_head:
            self._raw_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._raw_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._too_long = True
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and hang up."""
        if not self._too_long:
            super().send_400_response(msg)
            return
        text = f"The request line and headers have more than {MAX_HEAD_BYTES} bytes".encode()
        head = b"HTTP/1.1 431 \r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % len(text) + text)
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Some of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body begins."""
        self._in_head = False
        self._raw_bytes = 0
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._too_long = True
            raise HeadTooLong
