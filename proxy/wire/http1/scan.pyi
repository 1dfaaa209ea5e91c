"""Reading heads in one pass by compiled code: scan.pyx."""

from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead

def scan_request(data: bytes, last: RequestHead | None, header_bytes: int, headers: int) -> RequestHead | None: ...
def scan_answer(data: bytes, last: ResponseHead | None, header_bytes: int, headers: int) -> ResponseHead | None: ...
