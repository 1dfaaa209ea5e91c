"""The table of faults: what went wrong on the wire -> Fault(kind, progress, reused, detail, RFC 9209 error).

Every way in which an attempt can end without a whole answer is named here, and only here. A fault before the first byte
of the request was written is NEVER_SENT, whatever it was: such a request may be repeated for any method.
"""

from __future__ import annotations

import errno
import socket
import ssl

from proxy.retry.facts import Fault, FaultKind, Progress
from proxy.wire.http2.frames import INTERNAL_ERROR

#: RFC 9209 section 2.3: the proxy error type of a destination that is not allowed.
PROHIBITED = "destination_ip_prohibited"
#: The proxy error type for a process that can open no more connections.
NO_ROOM = "connection_limit_reached"
#: The proxy error type for a peer that ended TLS by an alert.
TLS_ALERT = "tls_alert_received"


class DeniedError(Exception):
    """No address of the destination may be connected to. The text says why, in a clause."""


class ParentRefusedError(Exception):
    """A parent proxy did not open the tunnel that it was asked for. The text says what it answered."""


class WrongProtocolError(Exception):
    """The upstream does not speak HTTP/2. The text says what it did instead, in a clause."""


class CertificateFileError(OSError):
    """TLS can't use the files of `verify` or `client_cert`. The text says why not."""


class NoPlaceError(Exception):
    """The upstream opened an HTTP/2 connection on which no stream may be opened."""


class NoRoomError(Exception):
    """The process has as many connections open as its file descriptors suffice for."""


#: The system's errors that mean the same as NoRoomError: no descriptor is left here, or no memory.
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


#: Errors whose own text is part of the fault's detail.
_SAYING = (ParentRefusedError, WrongProtocolError, CertificateFileError)

#: Most specific first: (exception, detail, error). Errors before any byte of the request.
_DIALLING: tuple[tuple[type[BaseException], str, str], ...] = (
    (socket.gaierror, "the name could not be resolved", "dns_error"),
    (ssl.SSLCertVerificationError, "the upstream's certificate was not accepted", "tls_certificate_error"),
    (CertificateFileError, "the files of verify or client_cert can't be used", "tls_protocol_error"),
    (ssl.SSLError, "the TLS handshake failed", "tls_protocol_error"),
    (ConnectionRefusedError, "the connection was refused", "connection_refused"),
    (TimeoutError, "no connection within the time allowed", "connection_timeout"),
    (ConnectionError, "the connection broke while it was being opened", "connection_terminated"),
    (NoRoomError, "too many connections are open here: the process may open no more files", NO_ROOM),
    (WrongProtocolError, "the upstream does not speak HTTP/2", "http_protocol_error"),
    (NoPlaceError, "the upstream allows no streams: its MAX_CONCURRENT_STREAMS is 0", "destination_unavailable"),
    (ParentRefusedError, "the parent proxy refused the tunnel", "destination_unavailable"),
    (FileNotFoundError, "the socket or certificate file does not exist", "destination_unavailable"),
    (PermissionError, "the socket or certificate file can't be opened: permission denied", "destination_unavailable"),
    (OSError, "the destination is unavailable", "destination_unavailable"),
)


def dialling(error: BaseException) -> Fault:
    """The fault of an attempt whose connection could not be opened."""
    if isinstance(error, DeniedError):
        return Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, detail=str(error), error=PROHIBITED)
    if isinstance(error, OSError) and error.errno in _NO_ROOM and not isinstance(error, ssl.SSLError):
        error = NoRoomError()
    for kind, detail, name in _DIALLING:
        if isinstance(error, kind):
            said = _said_of_tls(error)
            if kind is ssl.SSLError and _is_alert(error):
                name = TLS_ALERT
            if kind in _SAYING or (kind is OSError and getattr(error, "errno", None) is None):
                said = str(error)  # for example addresses that failed for several reasons
            text = f"{detail}: {said}" if said else detail
            return Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, detail=text, error=name)
    return Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, detail="internal error", error="proxy_internal_error")


def _said_of_tls(error: BaseException | None) -> str:
    """OpenSSL's description of a TLS error; "" if it has none, or if the error is not of TLS."""
    if not isinstance(error, ssl.SSLError):
        return ""
    return getattr(error, "verify_message", "") or _reason(error).replace("_", " ").lower()


def _is_alert(error: BaseException | None) -> bool:
    return isinstance(error, ssl.SSLError) and "_ALERT_" in _reason(error)


def _reason(error: ssl.SSLError) -> str:
    return getattr(error, "reason", None) or ""  # absent if the error is not OpenSSL's own


def closed(*, sent: bool, answered: bool, reused: bool, error: BaseException | None = None) -> Fault:
    """The fault of an exchange during which the upstream's connection ended.

    `sent`: a byte of the request was written to the kernel. `answered`: a byte of an answer had arrived. `reused`: the
    connection had carried another exchange before. `error`: the exception that the transport was closed with. A TLS
    alert gets a text of its own: by TLS 1.3, an upstream refuses a client's certificate, or its absence, only after the
    handshake, when the request may have arrived already.
    """
    if sent and not answered and _is_alert(error):
        detail = f"the upstream ended the connection by a TLS alert: {_said_of_tls(error)}"
        return Fault(FaultKind.RESET, Progress.UNKNOWN, reused=reused, detail=detail, error=TLS_ALERT)
    if answered:
        detail = "the upstream closed the connection in the middle of its answer"
        return Fault(FaultKind.RESET, Progress.ANSWERED, detail=detail, error="http_response_incomplete")
    if sent:
        detail = "the upstream closed the connection without an answer"
        return Fault(FaultKind.RESET, Progress.UNKNOWN, reused=reused, detail=detail)
    detail = "the connection was closed before the request was sent"
    return Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, reused=reused, detail=detail)


def broke_down(*, answered: bool) -> Fault:
    """The fault of an exchange that a defect of the proxy ended. `answered`: the head had arrived."""
    progress = Progress.ANSWERED if answered else Progress.UNKNOWN
    detail = "the proxy failed; its log says more"
    return Fault(FaultKind.RESET, progress, detail=detail, error="proxy_internal_error", code=INTERNAL_ERROR, ours=True)


def malformed(detail: str) -> Fault:
    """The fault of an answer that breaks the grammar of HTTP; `detail` says how."""
    detail = f"the upstream's answer is malformed: {detail}"
    return Fault(FaultKind.RESET, Progress.ANSWERED, detail=detail, error="http_protocol_error")


def attempt_timeout(within: float | None = None) -> Fault:
    """The fault of an attempt without a final head within `timeouts.attempt`, which is `within` seconds (None: not to
    be named).
    """
    detail = f"no answer within {_time(within)}timeouts.attempt{_closed(within)}"
    progress, error = Progress.UNKNOWN, "http_response_timeout"
    return Fault(FaultKind.ATTEMPT_TIMEOUT, progress, detail=detail, error=error, by_attempt=True)


def first_byte_timeout(within: float | None = None, *, answered: bool, events: bool = True) -> Fault:
    """The fault of an attempt without a byte of a body that counts within `timeouts.first_byte`, which is `within`
    seconds (None: not known). `answered`: the head had arrived; `events`: it promised a stream of events.
    """
    progress = Progress.ANSWERED if answered else Progress.UNKNOWN
    what = "answer" if not answered else "event" if events else "byte of the body"
    detail = f"no {what} within {_time(within)}timeouts.first_byte{_closed(within)}"
    return Fault(FaultKind.ATTEMPT_TIMEOUT, progress, detail=detail, error="http_response_timeout")


def idle_timeout(within: float | None = None, *, answered: bool) -> Fault:
    """The fault of an attempt on which nothing moved for longer than `timeouts.idle`, which is `within` seconds (None:
    not known). `answered`: the head had arrived.
    """
    progress = Progress.ANSWERED if answered else Progress.UNKNOWN
    error = "connection_read_timeout" if answered else "http_response_timeout"
    detail = f"no byte moved for {_time(within)}timeouts.idle{_closed(within)}"
    return Fault(FaultKind.ATTEMPT_TIMEOUT, progress, detail=detail, error=error)


def _time(within: float | None) -> str:
    """Return the seconds of a timeout and an opening bracket for the timeout's name, as in `20s (`; "" if they are not
    known.
    """
    return "" if within is None else f"{round(within, 3):g}s ("


def _closed(within: float | None) -> str:
    return "" if within is None else ")"
