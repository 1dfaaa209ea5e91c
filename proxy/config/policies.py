"""The maker of policies: a merged tree becomes a frozen policy, which says what applies to a call.

Every key is read by the form that the file was checked against, so a policy cannot contain what a file could not say.
Sections that no layer changes are the same object everywhere and are read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from proxy.config.classification import classify, dialects, packs_with_usage
from proxy.config.policy_schema import DEFAULTS, FILLED
from proxy.config.problems import Mark, Problems
from proxy.config.problems import Path as KeyPath
from proxy.config.schema_language import already_reported
from proxy.config.strategies import Kinds
from proxy.config.units import flag, is_flag
from proxy.config.yaml_tree import Map, Seq, is_file, lay
from proxy.retry.policies.bucket_specs import COUNTS_OUTPUT, BucketRef, RateSpec, TokenRules
from proxy.retry.policies.dialect import Classify, Dialect
from proxy.retry.policies.policy import (
    AutoLimit,
    BreakerSpec,
    Concurrency,
    Credentials,
    EndpointShare,
    Fallback,
    HeaderEdits,
    IdempotencyKey,
    Policy,
    PushbackOf,
    PushbackPolicy,
    Resume,
    Scope,
    Timeouts,
    WholeAnswers,
)
from proxy.retry.policies.routing import Endpoint, Target
from proxy.retry.strategies.presets import STANDARD

if TYPE_CHECKING:
    from proxy.config.service_config import MethodPolicy

Part = TypeVar("Part")

#: Keys whose value is a name or a mapping; a mapping is merged into the definition that the inherited value stands for.
_KINDS = ("strategy", "bucket", "rate")
#: The packs of providers whose limits belong to an account, so that all endpoints share them (contract, section 5).
OF_ACCOUNTS = frozenset({"openai", "anthropic", "stripe", "github", "google"})
#: Keys of an upstream or route that `Policies.make` does not read: other functions do.
_ELSEWHERE = frozenset({*_KINDS, "service_config", "routes", "url", "hosts", "prefix", "services", "match"})


@dataclass(frozen=True, slots=True)
class PolicyOwner:
    """The upstream or route that a policy is made for. `upstream` and `route` are its labels (`route` is "" for the
    upstream's own policy); `path` and `at`, where it stands in the file; `own` names the buckets and limits that are
    set there and not inherited; `shares` are the weights and priorities of the upstream's `endpoints`.
    """

    upstream: str
    route: str
    endpoints: tuple[Endpoint, ...]
    path: KeyPath
    at: Mark
    own: frozenset[str] = frozenset()
    shares: tuple[EndpointShare, ...] = ()
    credentials: Credentials | None = None


#: The keys of `pushback` that a policy has as they are written.
_BOUNDS = ("max_delay", "cooldown", "hold", "ahead")


class Policies:
    """A maker of policies, which keeps the effective tree of each for `explain`."""

    def __init__(self, kinds: Kinds, problems: Problems, own_fields: frozenset[str]) -> None:
        """Make the maker of policies. `kinds`: the strategies and buckets of the configuration; `own_fields`:
        lower-case names of request fields that are only for redrive, so that none is forwarded.
        """
        self._kinds = kinds
        self._own_fields = own_fields
        self._problems = problems
        known = DEFAULTS.default_values
        self._read = {(name, id(tree)): (tree, known[name]) for name, tree in DEFAULTS.defaults.items()}
        self._packs: dict[tuple[str, ...], tuple[Dialect, ...]] = {}
        self._classified: dict[object, Classify] = {}
        self._parts: dict[tuple[type, Any], Any] = {}
        self._reported: set[Mark] = set()  # positions of errors that were reported, which routes inherit
        self.trees: dict[tuple[str, str], Map] = {}
        self.defaults: Map | None = None  # the layer that every upstream inherits; None until it is made

    def layer(self, over: Map, under: Map, path: KeyPath) -> Map:
        """Lay `over`, a layer of a policy, over `under`, the layers that it inherits (contract, section 3). `path`: the
        layer's path of keys, for problems.
        """
        if "service_config" in over:
            for key in ("strategy", "bucket"):
                if key in over:
                    message = "has no effect: service_config replaces it"
                    self._problems.warn(over.keys_at[key], (*path, key), message)
            over, under = over.without("strategy", "bucket"), under.without("bucket")
        under = _without_overruled(over, under)
        worked_out = {
            key: self._kinds.over(key, over[key], under.get(key), over.values_at[key], (*path, key))
            for key in _KINDS
            if key in over
        }
        for key, section in FILLED.items():
            if isinstance(over.get(key), Map) and not isinstance(under.get(key), Map):
                worked_out[key] = lay(over[key], section.defaults)
        result = lay(over, under, worked_out)
        if worked_out.get("strategy") is not None:
            result.pop("service_config", None)
        return result

    def make(self, tree: Map, owner: PolicyOwner, method: MethodPolicy | None = None) -> Policy | None:
        """Make the policy of a merged tree. `method`: the policy of a method in the upstream's gRPC service config,
        laid over the tree; None for no such method. Returns None if the policy is wrong, which was reported.
        """
        path, groups = owner.path, dict.fromkeys(owner.own, owner.route)
        if method is not None:
            layer = method.layer
            if "bucket" in tree:  # named in a higher layer than the service config, so it replaces its throttling
                named = Map(tree.mark)
                named.take("bucket", tree)
                layer = self.layer(named, layer, path)
            else:
                groups["bucket"] = "service_config"
            tree = self.layer(layer, tree, path)
        at = tree.values_at["strategy"]
        found, whole = self._kinds.strategy(tree["strategy"], at, (*path, "strategy"))
        strategy = found if found is not None else STANDARD  # so that further errors are reported too
        if method is not None and method.hedged:
            strategy = replace(strategy, safe_methods=True)
        mark, group = tree.values_at.get("bucket", tree.mark), groups.get("bucket")
        bucket = self._kinds.bucket("bucket", tree.get("bucket"), strategy, mark, (*path, "bucket"), group)
        mark, group = tree.values_at.get("rate", tree.mark), groups.get("rate") or "rate"
        rates, rate_tree = self._kinds.rates(tree.get("rate"), strategy, mark, (*path, "rate"), group)
        typed = {name: self._typed(tree, name) for name in DEFAULTS.keys if name in tree and name not in _ELSEWHERE}
        pushback, scope = typed["pushback"], typed["scope"]
        key = IdempotencyKey(**typed["idempotency_key"])
        says = typed["circuit_breaker"]
        breaker = self._shared(BreakerSpec(**says)) if isinstance(says, dict) else None
        of = self._pushback_of(tree, typed, owner, path)
        # neither a limit nor an outage holds a call without retries, or one that does not wait for ready (section 14)
        alone = strategy.kind == "none" or (method is not None and method.fails_fast)
        rules = self._classify(tree, method, key, path, owner.endpoints, credentials=owner.credentials is not None)
        policy = Policy(
            owner.upstream,
            owner.route,
            strategy,
            self._shared(bucket[0]),
            self._shared(rates[0] if rates else None),
            self._shared(Scope("header", scope["header"].lower()) if isinstance(scope, dict) else Scope(scope)),
            self._shared(Timeouts(**typed["timeouts"])),
            rules,
            self._shared(frozenset(typed["attempt_headers"])),
            self._shared(key),
            self._shared(PushbackPolicy(of=of, **{name: pushback[name] for name in _BOUNDS})),
            typed["mode"],
            self._shared(_edits(typed["headers"]["request"], self._own_fields)),
            self._shared(_edits(typed["headers"]["response"])),
            self._shared(self._target(tree, typed, owner.endpoints, path)),
            circuit_breaker=breaker,
            endpoints=self._shared(owner.shares if breaker is not None or len(owner.shares) > 1 else ()),
            balance=typed["balance"],
            fallback=self._shared(tuple(map(_fallback, typed["fallback"]))),
            concurrency=self._shared(self._concurrency(typed["concurrency"], owner)),
            limit=None if alone else self._shared(_auto_limit(typed["concurrency"])),
            outage="fail" if alone else typed["outage"],
            credentials=owner.credentials,
            via=typed["via"],
            answers=self._shared(_answers(typed["answers"])),
            unfinished=typed["streams"]["unfinished"],
            resume=self._shared(Resume(**typed["resume"]) if isinstance(typed["resume"], dict) else None),
            more_rates=self._shared(rates[1:]),
            tokens=self._tokens(typed["tokens"], rates, rules, mark, path, ahead=pushback["ahead"]),
        )
        self._edited(tree, key, owner, path)
        self._read_fields_edited(tree, policy.classify, owner, path)
        if found is None:
            return None
        shown: list[tuple[str, str | None, Map | None]] = [("strategy", strategy.name, whole)]
        shown.append(("bucket", bucket[0].name if bucket[0] else None, bucket[1]))
        shown.append(("rate", rates[0].name if rates else None, rate_tree))
        self.trees[owner.upstream, owner.route] = _effective(tree, shown)
        return policy

    def _tokens(
        self,
        typed: dict[str, Any],
        rates: tuple[BucketRef, ...],
        rules: Classify,
        mark: Mark,
        path: KeyPath,
        *,
        ahead: bool,
    ) -> TokenRules | None:
        """The rules by which an attempt's cost in a language model's tokens is estimated, from the policy's typed
        values; None if nothing counts such tokens: none of the buckets in `rates`, and (if `ahead`) no limit that
        answers report. A bucket that counts them also needs a dialect pack, among those of `rules`, that knows where
        answers say how many tokens they cost. `mark` and `path`: the policy's position, for problems.
        """
        specs = [ref.spec for ref in rates if isinstance(ref.spec, RateSpec) and ref.spec.unit != "attempts"]
        fields = tuple(each.usage for each in rules.dialects if each.usage is not None)
        if not specs:
            counted = ahead and any(each.counts != "attempts" for dialect in rules.dialects for each in dialect.limits)
            return self._shared(TokenRules(typed["output"], typed["bytes"], float("inf"), fields)) if counted else None
        if not fields and mark not in self._reported:
            self._reported.add(mark)
            packs = ", ".join(packs_with_usage())
            message = f"counts tokens, which no dialect here knows how to read: add one of {packs} to dialects"
            self._problems.add(mark, (*path, "rate"), message)
        burst = min((each.burst for each in specs if each.unit in COUNTS_OUTPUT), default=float("inf"))
        return self._shared(TokenRules(typed["output"], typed["bytes"], burst, fields))

    def _edited(self, tree: Map, key: IdempotencyKey, owner: PolicyOwner, path: KeyPath) -> None:
        """Report a field that `headers` sets or removes if it carries credentials or the app's idempotency key. A call
        is repeated because of that key, so the upstream has to get the key as the app sent it.
        """
        credentials, edits = owner.credentials, tree.sub("headers").sub("request")
        written, removed = edits.sub("set"), edits.get("remove")
        marks = {name: written.keys_at[name] for name in written}
        marks |= dict(zip(removed, removed.marks, strict=True)) if isinstance(removed, Seq) else {}
        for name, mark in marks.items():
            if mark in self._reported:  # routes inherit it
                continue
            if credentials is not None and name.lower() == credentials.name:
                message = f"credentials already carry {name}: remove one of the two"
            elif name.lower() == key.header.lower():
                message = f"calls are repeated for their {name}: leave it, or name another in idempotency_key.header"
            else:
                continue
            self._reported.add(mark)
            self._problems.add(mark, (*path, "headers", "request", name), message)
        if credentials is not None and credentials.name == key.header.lower():
            mark = tree.sub("idempotency_key").values_at.get("header", owner.at)
            if mark.line == 0 and not owner.route:  # the default, which routes inherit
                mark = owner.at
            if mark.line and mark not in self._reported:
                self._reported.add(mark)
                message = f"credentials replace {key.header}: calls would be repeated for a key that is never sent"
                self._problems.add(mark, (*path, "idempotency_key", "header"), message)

    def _read_fields_edited(self, tree: Map, rules: Classify, owner: PolicyOwner, path: KeyPath) -> None:
        """Report a field by which a dialect recognises calls that only read, if `headers` edits the field or it carries
        credentials. Such a call is repeated because of the field's value as the app sent it, so the upstream has to get
        that value.
        """
        named = {
            each: pack for pack, reads in rules.reads for each in (reads.field, *(name for name, _ in reads.headers))
        }
        credentials, edits = owner.credentials, tree.sub("headers").sub("request")
        written, removed = edits.sub("set"), edits.get("remove")
        marks = {name: written.keys_at[name] for name in written}
        marks |= dict(zip(removed, removed.marks, strict=True)) if isinstance(removed, Seq) else {}
        for name, mark in marks.items():
            pack = named.get(name.lower())
            if pack is not None and mark not in self._reported:
                self._reported.add(mark)
                message = f"the dialect {pack} knows reads by {name}, and calls are repeated for it: leave it to apps"
                self._problems.add(mark, (*path, "headers", "request", name), message)
        if credentials is not None and credentials.name in named and not owner.route:
            message = f"the dialect {named[credentials.name]} knows reads by {credentials.header}: leave it to apps"
            self._problems.add(owner.at, (*path, "credentials", "header"), message)

    def _shared(self, part: Part) -> Part:
        """Return the part of an earlier policy (such as its timeouts) that is equal to `part`, else `part` itself.
        Policies share equal parts to save memory: thousands of routes differ in little.
        """
        known: Part = self._parts.setdefault((type(part), part), part)
        return known

    def _typed(self, tree: Map, name: str) -> Any:
        """The typed value of the key `name` of `tree`. A value that several layers share, as one object, is converted
        only once.
        """
        value = tree[name]
        known = self._read.get((name, id(value)))
        if known is None:
            form = DEFAULTS.keys[name].form
            typed = form.read(value, tree.values_at[name], (name,), already_reported)
            known = self._read[name, id(value)] = value, typed
        return known[1]

    def _classify(
        self,
        tree: Map,
        method: MethodPolicy | None,
        idempotency_key: IdempotencyKey,
        path: KeyPath,
        endpoints: tuple[Endpoint, ...],
        *,
        credentials: bool,
    ) -> Classify:
        """Compile a policy's lists of failures, its classification rules and its dialect packs, which `tree` has; equal
        ones are compiled once, and shared by policies. `method`: the policy of a gRPC service config's method, whose
        codes replace the lists, None for none; `endpoints`: the upstream's, whose hosts some dialects' rules depend on;
        `credentials`: whether the upstream has credentials.
        """
        typed, names = self._typed(tree, "classify"), self._typed(tree, "dialects")
        codes, retried = (None, False) if method is None else (method.codes, method.retried)
        timed = method is not None and method.timed
        inherited = self.defaults is None or tree.keys_at["dialects"] == self.defaults.keys_at["dialects"]
        of = retried, timed, inherited, credentials
        key = id(typed), id(names), codes, of, method is None, idempotency_key
        known = self._classified.get(key)
        if known is None:
            named = tree["dialects"]
            marks = named.marks if isinstance(named, Seq) else [tree.values_at["dialects"]]
            if method is not None and codes is None and "grpc" not in names:  # so that gRPC's UNAVAILABLE is a failure
                names, marks = (*names, "grpc"), [*marks, tree.values_at["dialects"]]
            packs = self._packs.get(names) if not any(name.endswith(("yaml", "yml")) for name in names) else None
            if packs is None:
                packs = self._packs[names] = dialects(names, marks, (*path, "dialects"), self._problems)
            known = classify(typed, packs, codes, retried, not inherited, idempotency_key, credentials=credentials)
            if timed:
                known = replace(known, service_timeout=True)
            if method is not None and codes is None:
                known = replace(known, service_unnamed=True)
            self._classified[key] = known
        if any(each.unsigned is not None for _, each in known.repeats):  # they are known by their host
            hosts = tuple(each.host for each in endpoints)
            known = self._classified.setdefault((key, hosts), replace(known, hosts=hosts))
        return known

    def _target(self, tree: Map, typed: dict[str, Any], endpoints: tuple[Endpoint, ...], path: KeyPath) -> Target:
        verify = flag(tree["verify"]) if is_flag(tree["verify"]) else self._file(tree, "verify", path)
        pair, cert = None, tree.get("client_cert")
        if isinstance(cert, Map):
            path = (*path, "client_cert")
            missing = [key for key in ("cert", "key") if key not in cert]
            for key in missing:
                if key not in cert.keys_at:  # a wrong value was reported already
                    self._problems.add(
                        tree.values_at["client_cert"], (*path, key), "is missing: write {cert: FILE, key: FILE}"
                    )
            if not missing:
                pair = self._file(cert, "cert", path), self._file(cert, "key", path)
        return Target(endpoints, verify, pair, typed.get("via_proxy"), typed["protocol"], self._problems.hidden)

    def _concurrency(self, typed: str | dict[str, Any], owner: PolicyOwner) -> Concurrency | None:
        """The concurrency limit (on attempts under way) of a policy; None if there is none. A route that sets any key
        of the limit has one of its own, besides its upstream's. `typed`: the typed value of `concurrency`, which is the
        word `off` or the limit's keys.
        """
        if isinstance(typed, str) or typed.get("max", "auto") == "auto":
            return None
        group = f"concurrency of {owner.route}" if "concurrency" in owner.own else "concurrency"
        return Concurrency(**typed, group=group)

    def _pushback_of(self, tree: Map, typed: dict[str, Any], owner: PolicyOwner, path: KeyPath) -> PushbackOf:
        """Return "endpoint" if a pushback holds only calls to the endpoint that sent it, and "upstream" if it holds
        those to the whole upstream (`pushback.of`). With `auto` it is the endpoint if there are several, unless limits
        belong to an account: the policy has credentials, or a pack of a provider that limits accounts (contract,
        section 5). `typed`: the policy's typed values.
        """
        said, several = typed["pushback"]["of"], len({each.label for each in owner.endpoints}) > 1
        if said == "endpoint" and not several:
            message = "endpoint needs a url that lists two or more different host:port"
            self._problems.add(tree.sub("pushback").values_at["of"], (*path, "pushback", "of"), message)
        if said != "auto":
            return cast(PushbackOf, said)
        of_account = owner.credentials is not None or not OF_ACCOUNTS.isdisjoint(typed["dialects"])
        return "upstream" if of_account or not several else "endpoint"

    def _file(self, tree: Map, key: str, path: KeyPath) -> str:
        """Return the absolute path of the file that the value of `key` names. A relative name starts at the directory
        of the configuration file that has the key. A missing file is reported as a problem.
        """
        file = relative_to(tree.values_at[key], str(tree[key]))
        self._problems.refer(file)
        if not is_file(file):
            self._problems.add(tree.values_at[key], (*path, key), f"there is no file {file}")
        return file


def _without_overruled(over: Map, under: Map) -> Map:
    """The lower layer `under` without those settings of header fields that the upper layer `over` overrules: fields
    that `over` removes, or sets under a name in another case. Merging alone would leave both settings in the result.
    """
    for side in ("request", "response"):
        edits = over.sub("headers").sub(side)
        names = {name.lower() for name in (*(edits.get("remove") or ()), *edits.sub("set"))}
        gone = [name for name in under.sub("headers").sub(side).sub("set") if name.lower() in names]
        if gone:
            headers, edited = under["headers"].copy(), under["headers"][side].copy()
            edited["set"] = edited["set"].without(*gone)
            headers[side] = edited
            under = under.copy()
            under["headers"] = headers
    return under


def _effective(tree: Map, shown: Iterable[tuple[str, str | None, Map | None]]) -> Map:
    """The tree that `explain` shows of a policy, in which a strategy's or bucket's name is replaced by its whole
    definition. `shown` has an entry for each such key: the key, the name that the policy sets (None if it has a mapping
    there), and the definition.
    """
    result = tree.without("routes", "match", "service_config")
    for key, name, found in shown:
        if found is None:
            continue
        at = tree.values_at.get(key) if key in tree else None
        whole = Map(found.mark)
        if name is not None and at is not None and not isinstance(tree[key], Map):
            whole.put("name", tree[key], at)
        for inner in found:
            whole.take(inner, found)
        result.put(key, whole, at or found.mark)
    return result


def relative_to(mark: Mark, name: str) -> str:
    """The absolute path of the file `name`. If `mark` is in a file, `name` is relative to that file, else to the
    working directory.
    """
    base = Path(mark.file).parent if mark.line else Path()
    return str((base / name).absolute())


def _fallback(typed: str | dict[str, Any]) -> Fallback:
    """Make an entry of `fallback`, which is written as a name alone, or as a mapping."""
    if isinstance(typed, str):
        return Fallback(typed)
    keep = frozenset(name.lower() for name in typed.get("keep", ()))
    return Fallback(typed["to"], tuple(typed.get("json", {}).items()), keep)


def _edits(typed: dict[str, Any], removed: frozenset[str] = frozenset()) -> HeaderEdits:
    """Make the edits of header fields from the section `headers`, `typed`. `removed`: lower-case names of further
    fields to remove. Names are compared without case: a field that a route sets replaces its upstream's.
    """
    fields = {name.lower(): (name, value) for name, value in typed["set"].items()}
    return HeaderEdits(tuple(fields.values()), removed | {name.lower() for name in typed["remove"]})


def _answers(typed: str | dict[str, Any]) -> WholeAnswers | None:
    """Make the bounds on answers that are kept until they are whole; None if no answer is kept."""
    return None if isinstance(typed, str) else WholeAnswers(**typed)


def _auto_limit(typed: str | dict[str, Any]) -> AutoLimit | None:
    """Make the bounds on the limit that redrive finds by itself under `concurrency: auto`, or under a mapping without
    another `max`; None if the policy sets a fixed limit, or no limit.
    """
    if typed == "auto":
        return AutoLimit()
    if isinstance(typed, str) or typed.get("max", "auto") != "auto":
        return None
    return AutoLimit(**{name: value for name, value in typed.items() if name != "max"})
