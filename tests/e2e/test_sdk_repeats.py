"""What an SDK's own retries ride out, redrive's recipe rides out; and it repeats no write that the SDK would not.

tools/sdk_repeats.py makes the calls, here as for the page. What cannot be had stands below by name, with the reason.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
PACKS = sorted((ROOT / "proxy/config/dialects").glob("*.yaml"))


def tool() -> ModuleType:
    """tools/sdk_repeats.py."""
    if "sdk_repeats" not in sys.modules:
        spec = importlib.util.spec_from_file_location("sdk_repeats", ROOT / "tools" / "sdk_repeats.py")
        assert spec is not None and spec.loader is not None
        sys.modules["sdk_repeats"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["sdk_repeats"]


SDKS = tool().SDKS

#: What never reached the upstream, or was not processed there: repeated for every method (section 4, cases 1 and 2).
NOT_CARRIED_OUT = ("refused", "429")
#: (SDK, call, failure) where a write is repeated after a failure of case 3 that its SDK gives up.
WRITES_REPEATED = {
    ("stripe", "customers.create", "408"): "it carries an Idempotency-Key, which makes it idempotent",
    **{
        ("stripe", "customers.create", cut): "the same, and requests tells of it as of no lost connection"
        for cut in tool().CUTS
    },
    **{
        ("boto3 (STS)", call, cut): "botocore repeats it after a reset, but does not enforce the length of an answer"
        for call in ("AssumeRoleWithWebIdentity", "AssumeRole")
        for cut in tool().CUTS[:3]
    },
}
#: SDKs that read no word of redrive's with which to stop: what both make of a call is what one makes times the other's.
MULTIPLIES = {sdk.name for sdk in SDKS if sdk.package == "botocore"} | {"azure-core"}


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.name)
async def test_through_the_recipe_a_call_is_never_worse_off(sdk: Any) -> None:
    results = await tool().play(sdk)
    worse, unsafe, twice, weaker, multiplied = [], [], [], [], []
    for call in sdk.calls:
        for failure in (*tool().failures(sdk), *tool().OTHERS):
            alone, ours, both = (results.once[call, failure, way] for way in tool().WAYS)
            if alone.succeeded and not (ours.succeeded and both.succeeded):
                worse.append((call.name, failure))
            write = call.method in ("POST", "PATCH") and failure not in NOT_CARRIED_OUT
            if write and ours.succeeded and not alone.succeeded:
                unsafe.append((sdk.name, call.name, failure))
            if failure not in tool().SLOW and both.sent > 2:
                twice.append((call.name, failure))
        for failure in tool().LASTING:
            alone, ours, both = (results.lasting[call, failure, way].sent for way in tool().WAYS)
            if ours < alone:
                weaker.append((call.name, failure))
            if both > max(alone, ours):
                multiplied.append((call.name, failure))
                assert both <= alone * ours, (call.name, failure, both)
    assert not worse, "the SDK's own retries ride these out, the recipe does not"
    assert unsafe == [cell for cell in WRITES_REPEATED if cell[0] == sdk.name]
    assert not twice, "the upstream failed once, and got the call more than twice"
    assert not weaker, "the SDK's own retries go on for longer than the recipe's"
    assert bool(multiplied) is (sdk.name in MULTIPLIES), multiplied
    if tool().installed_versions()[sdk.package] == tool().pinned_versions()[sdk.package]:
        pinned = tool().pinned_versions()[sdk.package]
        assert tool().section(results, pinned) in tool().PAGE.read_text(), "python tools/sdk_repeats.py --write"


def test_the_page_has_these_sdks_and_no_other() -> None:
    page = tool().PAGE.read_text()
    assert re.findall(r"(?m)^## (.*)$", page) == [*(sdk.name for sdk in SDKS), "What it takes"]
    assert page.startswith(tool().render([], {})[:1000])
    for package, version in tool().pinned_versions().items():
        assert f"\n{package} {version}, " in page, "python tools/sdk_repeats.py --write"


def test_a_pack_names_the_client_that_is_tried_here() -> None:
    """A pack's data are of the version that constraints.txt has, and its file and name are found there."""
    pinned = {"openai-python": "openai", "anthropic-sdk-python": "anthropic", "stripe-python": "stripe"}
    named = 0
    for pack in PACKS:
        repeats = yaml.safe_load(pack.read_text()).get("repeats")
        if repeats is None:
            continue
        client, file, where = repeats["client"].split(", ")
        package, version = client.split(" ")
        package = pinned.get(package, package)
        assert tool().pinned_versions()[package] == version, pack.name
        if tool().installed_versions()[package] == version:
            module = importlib.util.find_spec(file.removesuffix(".py").replace("/", "."))
            assert module is not None and module.origin is not None, file
            source = Path(module.origin).read_text()
            assert all(re.search(rf"(class|def) {name}\b", source) for name in where.split(".")), where
        named += 1
    assert named >= 5
