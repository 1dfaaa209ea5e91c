"""A tunnel: two streams that feed each other, each closed when the other end has closed its own."""

from __future__ import annotations

from proxy.forward.streams import AppStream
from proxy.transport.streams import UpstreamStream


class Pipe:
    """The tunnel's direction from the app to the upstream's stream; the exchange forwards the other direction like any
    answer. `bytes_in`: bytes that the app has sent.
    """

    __slots__ = ("_app", "_app_ended", "_stream", "_upstream_ended", "bytes_in")

    def __init__(self, app: AppStream, stream: UpstreamStream) -> None:
        self._app = app
        self._stream = stream
        self._app_ended = self._upstream_ended = False
        self.bytes_in = 0

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended."""
        return self._app_ended and self._upstream_ended

    def write(self, data: bytes) -> None:
        """Send the app's bytes to the upstream. If the upstream does not keep up, reading from the app pauses."""
        self.bytes_in += len(data)
        self._stream.write(data)
        if self._stream.blocked:
            self._app.pause()

    def app_ended(self) -> None:
        """End the direction to the upstream: the app sends no more."""
        self._app_ended = True
        self._stream.finish(None)

    def upstream_ended(self) -> None:
        """End the direction to the app: the upstream sends no more."""
        self._app.finish(None)
        self._upstream_ended = True
