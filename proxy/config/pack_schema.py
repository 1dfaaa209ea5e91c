"""The part of the file's format that defines a dialect pack."""

from __future__ import annotations

from proxy.config import addresses, units
from proxy.config.policy_schema import OUT_OF_QUOTA, RULE
from proxy.config.rule_section import RuleSection
from proxy.config.scalars import (
    ANY,
    NOTHING_MATCHES,
    duration,
    fault,
    flag,
    glob,
    header_globs,
    header_name,
    json_path,
    key_header,
    like,
    one_word,
    positive_duration,
    section,
    several,
    status,
    token,
    whole,
    word,
)
from proxy.config.schema_language import JsonValue, Key, ListOf, MapOf, Word

spelling = Word(units.spelling, like(r".*\{\}.*"))
error_text = Word(units.error_text, ANY)

CODES = section(
    "codes",
    "Error codes by class, wherever the provider writes them: one rule for each code and place.",
    status=Key(several(status, NOTHING_MATCHES), "400-599"),
    header=Key(ListOf(header_name), [], "header fields that hold a code"),
    json=Key(ListOf(word), [], "dotted paths in a JSON body"),
    xml=Key(ListOf(word), [], "elements of an XML body"),
    spelled=Key(
        ListOf(spelling, NOTHING_MATCHES), ["{}"], "how a place may spell a code, {} standing for it; * is any text"
    ),
    **{name: Key(ListOf(word), []) for name in ("throttling", "timeout", "transient", "fatal")},
)

TIME_FORMAT = one_word("seconds", "epoch", "epoch_ms", "duration", "http_date", "rfc3339")

REPEATS = section(
    "repeats",
    "What the provider's official client repeats by default, whatever the method (unsafe_methods: provider).",
    client=Key(word, required=True, doc="where that was read: the client, its version and file"),
    status=ListOf(status),
    idempotent=Key(ListOf(status), doc="statuses that it repeats for idempotent methods alone"),
    faults=ListOf(fault),
    transient_codes=Key(flag, False, "what this pack's own rules class transient"),
    should_retry=Key(flag, False, "any failure with x-should-retry: true"),
    retry_after=Key(flag, False, "any failure with Retry-After"),
    header=Key(MapOf(glob), doc="the client's requests, known by these fields"),
    keyed=Key(flag, False, "only requests with the idempotency key, or of an idempotent method"),
    alone=Key(flag, False, "only if amz-sdk-request does not say that the app's SDK retries by itself"),
    within=Key(duration, doc="only this long after the first attempt"),
    whole_answers=Key(
        ListOf(token), doc="methods for which it reads an answer whole before it decides, and so repeats a broken one"
    ),
    attempts=Key(whole(1), doc="how many attempts it makes in all; check says where a policy makes fewer"),
    unsigned=section(
        "unsigned",
        "POSTs of a form that it sends without authorization.",
        host=Key(word, required=True, doc="a glob of the host"),
        field=Key(word, required=True, doc="the field of the form that names what is asked for"),
        values=Key(ListOf(word, NOTHING_MATCHES), required=True),
    ),
)

READS = section(
    "reads",
    "POSTs that change nothing: repeated as GETs are, but not hedged.",
    field=Key(key_header, required=True, doc="the request field that names what a POST asks for"),
    values=Key(ListOf(word, NOTHING_MATCHES), required=True, doc="globs of its values that are reads"),
    header=Key(
        header_globs,
        doc="only if the request also has these fields, which make the server compare that field with the body",
    ),
)

USAGE = section(
    "usage",
    "Where requests and answers say how many of a language model's tokens they cost: dotted paths in JSON, * for each "
    "item of a list, *[type=a] for each whose type is a.",
    maximum=Key(ListOf(json_path), [], "of a request: the most output tokens"),
    choices=Key(ListOf(json_path), [], "of a request: how many outputs it asks for"),
    model=Key(ListOf(json_path), [], "of a request: its model"),
    media=Key(ListOf(word), [], "of a request: names of members whose strings are media, wherever they are"),
    prompt=Key(ListOf(json_path), [], "of an answer, or an event of a stream: tokens of the prompt, which add up"),
    prompt_free=Key(ListOf(json_path), [], "tokens among those that the provider does not count, such as cached ones"),
    output=Key(ListOf(json_path), [], "tokens of the output, which add up"),
    text=Key(ListOf(json_path), [], "the output's text, which stands for its tokens where numbers are missing"),
)

ERRORS = section(
    "errors",
    "How the provider words an error, for answers of redrive's own. In texts, {message}, {word}, {outcome}, {status} "
    "and {type} (the page that explains the outcome) are replaced.",
    json=Key(MapOf(error_text), {}, "dotted.path: text, in a JSON body, beside the members of problem+json"),
    header=Key(MapOf(error_text, key=addresses.header_name), {}, "name: text"),
    words=Key(
        ListOf(
            section(
                "error_word",
                "The provider's word for errors with some statuses; the first match wins.",
                status=Key(several(status, NOTHING_MATCHES), required=True),
                word=Key(word, required=True),
            )
        ),
        [],
        "what {word} is",
    ),
    xml=Key(
        ListOf(
            section(
                "error_xml",
                "Requests with an AWS signature to which the answer is XML.",
                services=Key(
                    ListOf(word),
                    [],
                    "the services that the signature may name; without any, each one to which a form is sent",
                ),
                root=Key(word, required=True, doc="dotted names of the elements around Code and Message"),
            )
        ),
        [],
        "the first match wins; every other request gets JSON",
    ),
)

_END_MARK = section(
    "end_mark",
    "A mark of an event in a stream.",
    event=Key(word, doc="its name, or else the type in its data; a * at the end stands for any rest"),
    data=Key(word, doc="its whole data"),
    present=Key(word, doc="a dotted path in its data, * for each item of a list: a member that is not null"),
)

STREAM_ENDS = section(
    "stream_ends",
    "How the provider's streams of events end, so that one that lacks its last event is noticed.",
    ends=Key(ListOf(_END_MARK, NOTHING_MATCHES), doc="events that end a stream", required=True),
    known=Key(ListOf(_END_MARK), [], "further events of such streams; a stream of other events alone is not judged"),
    by_body=Key(flag, True, "such a stream is asked for by a JSON body with stream: true"),
    path=Key(word, doc="such a stream is asked for by a path that ends with this"),
    error=section(
        "error_event",
        "The provider's event for an error of its server, as it is written into a stream.",
        event=Key(word, doc="its name"),
        data=Key(JsonValue(), required=True, doc="its data, as JSON"),
    ),
)

ERRORS_INSIDE = section(
    "errors_inside",
    "Errors in the XML of a success, known by its root element.",
    requests=Key(
        ListOf(
            section(
                "asked_for",
                "Requests whose answers begin before their outcome is known.",
                method=Key(token, required=True),
                header=Key(header_globs, doc="name: glob; * means present"),
                query=Key(word, doc="a parameter that the query has"),
            ),
            NOTHING_MATCHES,
        ),
        required=True,
    ),
    root=Key(word, required=True, doc="the local name of an error's root element"),
    status=Key(whole(400, 599), 500, "the status that such an error is read as"),
    awake=Key(positive_duration, "20s", "the time for which white space before the root element is held back"),
)

PACK_RULE = RuleSection(
    "pack_rule",
    RULE.doc,
    {
        **RULE.keys,
        "counts_as": Key(whole(400, 599), doc="for an error in a success: the status that it has elsewhere"),
    },
)

PACK = section(
    "pack",
    "How a provider words its errors and limits.",
    name=Key(word, required=True),
    source=Key(ListOf(word), required=True, doc="the provider's documentation"),
    stop_field=Key(header_name, doc="what its SDKs read instead of x-should-retry"),
    grpc=Key(flag, False, "gRPC's reading of HTTP codes and faults on application/grpc calls"),
    rules=Key(ListOf(PACK_RULE), [], "the first match wins"),
    empty_events=Key(ListOf(word), [], "names of events that carry nothing yet: they are kept until one that counts"),
    codes=CODES,
    delays=Key(
        ListOf(
            section(
                "delay",
                "A delay in the JSON body of a failure.",
                json=Key(word, required=True, doc="its dotted path"),
                format=Key(TIME_FORMAT, required=True),
            )
        ),
        [],
    ),
    repeats=REPEATS,
    reads=READS,
    usage=USAGE,
    errors=ERRORS,
    errors_inside=ERRORS_INSIDE,
    stream_ends=STREAM_ENDS,
    out_of_quota=Key(
        ListOf(OUT_OF_QUOTA),
        [],
        "the answers for which `credentials` put a key aside, whatever their class",
    ),
    limits=Key(
        ListOf(
            section(
                "limit",
                "A limit that answers report, for pushback.ahead.",
                name=Key(word, required=True, doc="its label in redrive_limit_remaining"),
                counts=Key(one_word("attempts", "tokens", "prompt", "output"), "attempts", "what it counts"),
                limit=Key(header_name, doc="the field with how much there is in all"),
                remaining=Key(header_name, required=True, doc="the field with what is left"),
                reset=Key(header_name, required=True, doc="the field that says when it is whole again"),
                format=Key(TIME_FORMAT, "seconds", required=True),
                where=Key(MapOf(word, key=addresses.header_name), {}, "fields that are absent, or have this value"),
            )
        ),
        [],
    ),
    resets=Key(
        ListOf(
            section(
                "reset",
                "A field that says when a quota is full again.",
                field=Key(header_name, required=True),
                format=Key(TIME_FORMAT, "seconds", required=True),
                remaining=Key(header_name, doc="read only where this field is 0"),
                limit=Key(MapOf(glob), doc="dotted.path: glob; or where a 429's body names the limit like this"),
            )
        ),
        [],
    ),
)
