"""The proxy's own answers in the words of the client that reads them: a provider's SDK, an AWS SDK that reads XML, git.

A dialect pack is a file that describes a provider. It says how the provider words an error (`errors`), so that the
provider's SDK shows our reason as it shows the provider's own. The members of problem+json are sent as well. Two kinds
of client read no JSON: AWS SDKs of services whose answers are XML get XML, and git, which shows only text/plain
(http.c, show_http_message), gets one line of text.
"""

from __future__ import annotations

from typing import Any

from proxy.retry.facts import Request, first
from proxy.retry.policies.dialect import ErrorWords
from proxy.retry.policies.policy import Policy

_FORM = "application/x-www-form-urlencoded"


class Worded:
    """An error of the proxy's own as its client reads it: the media type of the body, the body, and further header
    fields.
    """

    __slots__ = ("body", "fields", "media")

    def __init__(self, media: str, body: bytes, fields: tuple[tuple[str, str], ...] = ()) -> None:
        self.media = media
        self.body = body
        self.fields = fields


def words_of(policy: Policy) -> ErrorWords | None:
    """Return the form of errors (`errors`) of the first of a policy's dialects that has one; None if none has."""
    return next((dialect.errors for dialect in policy.classify.dialects if dialect.errors is not None), None)


def as_text(request: Request, message: str) -> Worded | None:
    """Return the message as text for git, which shows no other; None for every other client."""
    if not (first(request.fields, "user-agent") or "").startswith("git/"):
        return None
    return Worded("text/plain; charset=utf-8", message.encode() + b"\n")


def _escaped(text: str) -> str:
    """Return a text as it is written between tags of XML. (`xml.sax.saxutils.escape` does the same, but importing it
    takes 0.6 MiB of memory.)
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_xml(words: ErrorWords, request: Request, members: dict[str, Any], values: dict[str, Any]) -> Worded | None:
    """Return an error as XML; None for a client that does not read XML. Clients read XML if they signed their request
    for an AWS service whose answers are XML, or if they are an AWS SDK that sends a form without a signature (STS).
    `members`: those of problem+json; `values`: what the words' templates may use.
    """
    if not words.xml:
        return None
    service = _service(first(request.fields, "authorization") or "")
    if not service and first(request.fields, "amz-sdk-invocation-id") is None:
        return None
    form = (first(request.fields, "content-type") or "").startswith(_FORM)
    for services, root in words.xml:
        if service in services or (not services and form):
            inside = {"Code": values["word"], "Message": values["message"], **members}
            body = "".join(f"<{name}>{_escaped(str(value))}</{name}>" for name, value in inside.items())
            for name in reversed(root):
                body = f"<{name}>{body}</{name}>"
            text = f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'
            return Worded("application/xml", text.encode(), _fields(words, values))
    return None


def _service(authorization: str) -> str:
    """Return the service in the scope of an AWS signature, the value of the field Authorization
    (`Credential=KEY/DATE/REGION/SERVICE/aws4_request`), "" if there is none.
    """
    if not authorization.startswith("AWS4-"):
        return ""
    scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    return scope[-2] if len(scope) > 4 and scope[-1].strip() == "aws4_request" else ""


def with_words(words: ErrorWords, members: dict[str, Any], values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Add the members of the provider's own error format, `words`, to `members`, which are those of problem+json and
    stay as they are; return the further header fields that the format has, as (name, value). `values`: what its
    templates may use.
    """
    for path, template in words.json:
        place = members
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place.setdefault(path[-1], _filled(template, values))
    return _fields(words, values)


def _fields(words: ErrorWords, values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(_filled(template, values))) for name, template in words.fields)


def _filled(template: str, values: dict[str, Any]) -> Any:
    """Fill a template's placeholders by name from `values`. The result is a text, but a template that consists of one
    placeholder, such as "{status}", gives the value itself, so that a number stays a number.
    """
    if template[:1] == "{" and template[1:-1] in values and template[-1:] == "}":
        return values[template[1:-1]]
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", str(value))
    return template
