"""Answer WebSocket clients that break the protocol as RFC 6455 says, and close all when the server stops."""

import codecs
from typing import Any

from typing_extensions import override
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

LAST_EVENT_ID = "last_event_id"
"""Key in the state of a socket: the last event that was sent, from which its client resumes elsewhere."""
_VERSION = "13"


class _VersionedHandshake(ServerProtocol):
    """Names the supported version to a client that asks for another one."""

    @override
    def accept(self, request: Request) -> Response:
        if request.headers.get_all("Sec-WebSocket-Version") == [_VERSION]:
            return super().accept(request)
        response = self.reject(426, f"Connect with Sec-WebSocket-Version: {_VERSION}.\n")
        response.headers["Sec-WebSocket-Version"] = _VERSION
        response.headers["Upgrade"] = "websocket"
        return response


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol; a wrong version gets 426, and text that is not UTF-8 is closed with 1007."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        plain = self.conn
        self.conn = _VersionedHandshake(
            extensions=plain.available_extensions, max_size=self.config.ws_max_size, logger=plain.logger
        )

    @override
    def shutdown(self) -> None:
        """Close with 1012 when the server stops; the reason says from where the client resumes."""
        last: int | None = self.scope.get("state", {}).get(LAST_EVENT_ID) if self.handshake_complete else None
        if last is not None and not self.close_sent:
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.SERVICE_RESTART})
            self.conn.send_close(CloseCode.SERVICE_RESTART, f"reconnect; last event {last}")
            self.transport.write(b"".join(self.conn.data_to_send()))
            return
        super().shutdown()

    @override
    def send_receive_event_to_app(self) -> None:
        """Pass a whole message to the app, or close the connection if its text is not UTF-8."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(self.frames):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA, "text messages must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()


def _is_utf8(pieces: list[bytes]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
