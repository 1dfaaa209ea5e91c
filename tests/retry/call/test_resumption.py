"""What a signature covers, by botocore's own signer: a Range can be added to a signed GET (contract, section 15)."""

from __future__ import annotations

import pytest

botocore = pytest.importorskip("botocore")


def test_the_signature_of_a_get_does_not_cover_a_range_that_it_does_not_name() -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    signer = S3SigV4Auth(Credentials("id", "secret"), "s3", "eu-central-1")
    request = AWSRequest("GET", "https://bucket.s3.eu-central-1.amazonaws.com/key")
    signer.add_auth(request)
    signed = request.headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert signed == ["host", "x-amz-content-sha256", "x-amz-date"]
    # The verifier makes the canonical request from the fields that SignedHeaders names, and no others.
    before = _canonical(signer, request, signed)
    request.headers["Range"], request.headers["If-Range"] = "bytes=20-", '"v1"'
    assert _canonical(signer, request, signed) == before
    ranged = AWSRequest("GET", request.url, headers={"Range": "bytes=1-2"})
    signer.add_auth(ranged)
    assert (
        "range" in ranged.headers["Authorization"]
    )  # a Range that the app sends is signed: such a call does not go on


def _canonical(signer: object, request: object, signed: list[str]) -> str:
    from botocore.awsrequest import AWSRequest

    kept = {name: value for name, value in request.headers.items() if name.lower() in signed}  # type: ignore[attr-defined]
    bare = AWSRequest(request.method, request.url, headers=kept)  # type: ignore[attr-defined]
    return str(signer.canonical_request(bare))  # type: ignore[attr-defined]
