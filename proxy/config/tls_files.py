"""Faults of the certificate files that a configuration names, found before a connection needs the files."""

from __future__ import annotations

import ssl

from proxy.client_certificate import EncryptedKeyError, load_client_certificate


def fault_of_files(files: tuple[str, ...]) -> str:
    """Return what is wrong with a file of roots (`verify`), or with the files of a client certificate and its key, as a
    clause; "" if TLS can use them, or if there are no files.
    """
    if not files:
        return ""
    return _fault_of_roots(*files) if len(files) == 1 else _fault_of_pair(*files)


def _fault_of_roots(file: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except ssl.SSLError:
        return f"{file} has no certificate in PEM"
    except OSError as error:
        return f"{file} can't be read ({error.strerror})"
    return ""


def _fault_of_pair(cert: str, key: str) -> str:
    try:
        load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert, key)
    except EncryptedKeyError:
        return f"{key} is encrypted: decrypt it with openssl pkey -in {key} -out FILE"
    except ssl.SSLError as error:
        reason: str | None = error.reason
        if reason == "KEY_VALUES_MISMATCH":
            return f"{key} is not the key of {cert}"
        if not reason:  # OpenSSL does not say which of the files has nothing in PEM
            return _fault_of_roots(cert) or f"{key} has no private key in PEM"
        return f"TLS can't use {cert} and {key} ({reason.replace('_', ' ').lower()})"
    except OSError:
        return _fault_of_roots(cert) or f"{key} can't be read"
    return ""
