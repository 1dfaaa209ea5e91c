"""The files of a client certificate, loaded for TLS without a question on the terminal."""

from __future__ import annotations

import ssl


class EncryptedKeyError(ssl.SSLError):
    """The file of a key is encrypted, and its password is not known."""

    def __init__(self) -> None:
        super().__init__("the key is encrypted")
        self.reason = "THE_KEY_IS_ENCRYPTED"


def load_client_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Load the files of a certificate and its key into `context`. Raises EncryptedKeyError if the key is encrypted:
    OpenSSL would ask the terminal for the password, and all calls would wait. Raises OSError as `ssl` does.
    """
    context.load_cert_chain(cert, key, password=_no_password)


def _no_password() -> str:
    raise EncryptedKeyError
