"""Settings that are valid but have no effect, or not the expected one: `redrive check` and `explain` report them.

Advice never refuses a configuration. A setting that many upstreams inherit is reported once, where it was written. If
there are errors, advice is given only for upstreams that contain none and inherit none.
"""

from __future__ import annotations

from proxy.config.policy_advice import PolicyAdvice, tree_of
from proxy.config.problems import Mark, Problems, did_you_mean
from proxy.config.problems import Path as KeyPath
from proxy.config.schema import FILE
from proxy.config.settings import Address, Settings
from proxy.config.upstream_advice import UpstreamAdvice
from proxy.config.yaml_tree import Map, Seq, mark_at
from proxy.retry.apps import OTHERS, Apps
from proxy.retry.policies.policy import Policy
from proxy.retry.weather.cooldown import CREDENTIAL_FIELDS

#: Keys of a file that do not affect its policies, even if they contain an error.
_APART = FILE.keys.keys() - {"include", "buckets", "strategies", "defaults", "upstreams", "via_proxy", "redis"}


def advise(settings: Settings, placed: list[tuple[Policy, Mark, KeyPath]], tree: Map, problems: Problems) -> None:
    """Report all advice about a compiled configuration. `placed` has each policy with its position; `tree` contains the
    included files too.
    """
    errors = [error.path for error in problems.errors]
    if not all(path.startswith("upstreams.") or path.partition(".")[0] in _APART for path in errors):
        return
    names = (each.name for each in settings.router.upstreams)
    wrong = {name for name in names if any(path.startswith(f"upstreams.{name}") for path in errors)}
    _advise_policies(settings, [each for each in placed if each[0].upstream not in wrong], problems)
    of_upstreams = UpstreamAdvice(settings, placed, tree)
    for upstream in settings.router.upstreams:
        if upstream.name not in wrong:
            for found in of_upstreams.on(upstream):
                problems.warn(*found)
    if not any(path.startswith("upstreams.") for path in errors):
        for found in of_upstreams.on_all():
            problems.warn(*found)
    _advise_listeners(settings, tree, problems)
    _advise_apps(settings, tree, problems)


def _advise_apps(settings: Settings, tree: Map, problems: Problems) -> None:
    """Report that apps are named by a field that carries credentials, because it is not forwarded then."""
    for number, name in enumerate(() if settings.apps is None else settings.apps.by):
        if name in CREDENTIAL_FIELDS:
            path: KeyPath = ("apps", "by", number, "header")
            message = f"{name} is not forwarded if it names apps, so no upstream gets it: take a field of your own"
            problems.warn(mark_at(tree, path), path, message)


def _advise_listeners(settings: Settings, tree: Map, problems: Problems) -> None:
    """Report listeners on [::], which takes IPv6 alone, that have no counterpart for IPv4, listeners with a port of the
    system's choice that are named twice, and names of apps that have no effect.
    """
    listening: list[tuple[KeyPath, Address]] = [
        (("listen", number) if isinstance(tree.get("listen"), Seq) else ("listen",), address)
        for number, address in enumerate(settings.listen)
    ]
    if settings.admin is not None:
        listening.append(
            (("admin", "listen") if isinstance(tree.get("admin"), Map) else ("admin",), settings.admin.listen)
        )
    if settings.probe is not None:
        listening.append((("probe",), settings.probe))
    for number, address in enumerate(settings.listen):
        first = settings.listen.index(address)
        if first < number and address.unix is None and address.port == 0:  # other addresses are refused
            apps = " with one app" if settings.listen[first].app != address.app else ""
            message = f"{address} stands there twice, and is one listener{apps}: give each a port of its own"
            problems.warn(mark_at(tree, ("listen", number)), ("listen", number), message)
    for path, address in listening:
        counterpart = Address("0.0.0.0", address.port)  # noqa: S104  compared, not bound
        if address.host == "::" and (path[0] != "listen" or counterpart not in settings.listen):
            further = f"add {counterpart} for IPv4" if path[0] == "listen" else f"{counterpart} takes IPv4 alone"
            problems.warn(mark_at(tree, path), path, f"takes IPv6 alone; {further}")
        if address.app and (message := unused_app(address.app, settings.apps, "listener")):
            problems.warn(mark_at(tree, (*path, "app")), (*path, "app"), message)


def unused_app(name: str, apps: Apps | None, way: str) -> str:
    """Why the name of an app that is given in this way has not the effect that it seems to have; "" if it has."""
    if apps is None:
        return "has no effect without the section apps, whose `known` lists the apps"
    if way not in apps.by:
        return f"has no effect: apps.by does not list {way}"
    if name in apps.known or name == OTHERS:
        return ""
    return f"{name} is not in apps.known: its calls count as those of others{did_you_mean(name, apps.known)}"


def _advise_policies(settings: Settings, placed: list[tuple[Policy, Mark, KeyPath]], problems: Problems) -> None:
    """Report the advice about policies, each piece at the key that it is about or, if the file does not have the key,
    at the upstream or route. Equal advice for a position is reported once. `placed`: every policy with its position in
    the file and its path.
    """
    advice, reported = PolicyAdvice(settings), set()
    for policy, at, path in placed:
        for key, message, severity in advice.on(policy):
            mark = mark_at(tree_of(settings, policy), key)
            mark = mark if mark.line else at
            if mark.line and (mark, key, message) not in reported:
                reported.add((mark, key, message))
                problems.add(mark, (*path, *key), message, severity)
