"""Form-encoded request bodies that a provider's client sends without a signature. The client repeats these requests
after a failure, although their method is POST (contract, section 15).
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from proxy.retry.answers.rules import any_matches
from proxy.retry.facts import Request
from proxy.retry.policies.dialect import Forms

#: The longest form that is read: a token or an assertion has some 20 KiB at most.
_LONGEST = 256 * 1024


def is_form(forms: Forms, hosts: tuple[str, ...], request: Request) -> bool:
    """Whether the request matches `forms`, which a provider's dialect pack lists: a form-encoded field of its body has
    one of the listed values, and its host is the one that `forms` names. `hosts`: the hosts of the upstream's
    endpoints, which count as the request's host too, because a request to a reverse proxy names redrive's host.
    """
    if request.body is None or not any_matches([request.authority.lower(), *hosts], forms.host):
        return False
    pieces = request.body.whole()
    body = b"" if pieces is None else b"".join(pieces)
    if not 0 < len(body) <= _LONGEST:
        return False
    try:
        said = [value for name, value in parse_qsl(body.decode("latin-1"), max_num_fields=100) if name == forms.field]
    except ValueError:
        return False
    return len(said) == 1 and said[0] in forms.values
