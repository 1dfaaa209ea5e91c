"""The demo's last line: what each app got, and what it cost, in one sentence each. It says what was counted, also where
redrive is not ahead.
"""

from __future__ import annotations

from proxy.lab.demo.play import App, DemoRun


def verdict(play: DemoRun) -> str:
    """The demo's last line: the shares of calls that succeeded with redrive and with the two other ways to call, the
    calls that redrive saved, and what that cost in requests and in time. `play`: the run so far.
    """
    none, at_once, ours = play.apps
    if not all(app.counts.calls for app in play.apps):
        return "verdict: none yet, since no call has ended"
    lost = min(none.failed, at_once.failed) - ours.failed
    saved = f"{lost:,} calls fewer failed" if lost > 0 else "it saved no calls"
    others = ", ".join(f"{_share(app)} with {app.name}" for app in (none, at_once))
    sent = ", ".join(f"{100 * app.counts.attempts / app.counts.calls:.0f}" for app in play.apps)
    slow = f"{ours.quantile(0.5):.1f} and {ours.quantile(0.95):.1f} s"
    return (
        f"verdict: {_share(ours)} succeeded with redrive, {others}: {saved}; requests sent for 100 calls: {sent} "
        f"(redrive last); the price: half of redrive's calls, and 95 % of them, took at most {slow}"
    )


def _share(app: App) -> str:
    return f"{app.counts.succeeded / app.counts.calls:.1%}"
