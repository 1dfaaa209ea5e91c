"""Which of CI's two runs has a test whose outcome is the same in Python alone and compiled.

`.ci/run` runs the tests in Python alone (`pytest --of-two-runs python`) and compiled (`pytest --of-two-runs compiled`).
A test that is named here is in one of these runs; all others are in both. Without the option, as with `make test-all`,
nothing is left out. Files and folders are divided so that both runs take about as long.

A test with a parameter `seed` plays what chance draws from it. Its seeds are a sample, of which each run plays every
other one, unless the test is in one run only. Where Hypothesis draws several hundred examples, anew each time, each run
draws half of them (`examples`); where they are the same each time, each run has others (`first_seed`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
RUNS = ("python", "compiled")
#: A variable of the environment of processes that have tests of one of the two runs: that run.
ONE_OF_TWO = "REDRIVE_ONE_OF_TWO_RUNS"

#: The run that has them: why they are the same in the other, and their paths below `tests`.
ONCE: dict[str, dict[str, tuple[str, ...]]] = {
    "python": {
        "pages, what the source says, and commands as a reader types them": (
            "docs", "conformance/test_linear_expressions.py",
        ),
        "the dashboard's own code, in a browser": ("browser",),
        "files for installing, containers and releases": (
            "deploy/test_deploy_files.py", "deploy/test_github.py", "deploy/test_helm_chart.py",
            "deploy/test_https_in_containers.py", "deploy/test_install.py", "deploy/test_memory_limits.py",
            "deploy/test_nothing_writable.py", "deploy/test_release.py", "deploy/test_systemd.py",
            "deploy/test_two_runs.py",
        ),
        "verbs and tables for a terminal": ("cli", "e2e/test_explain_now.py", "top"),
        "explanations, and files of policy tests, of whose modules none is compiled: what they play, which is, is held"
        " in both runs by tests/policy and tests/retry": (
            "lab/test_explain.py", "lab/test_explain_kept.py", "lab/test_flaky.py", "lab/test_policy_test_files.py",
            "lab/test_policy_test_output.py", "lab/test_policy_tests_before.py", "lab/test_what_if.py",
        ),
        "credentials and keys in files, of whose modules none is compiled: that calls go on meanwhile is held in both"
        " runs by e2e/test_e2e_process.py": (
            "e2e/test_credentials_served.py", "e2e/test_key_files_swapped.py",
        ),
        "configuration files, of which no module is compiled": (
            "config/test_check_messages.py", "config/test_config_advice.py", "config/test_config_hostile.py",
            "config/test_config_merge.py", "config/test_config_provenance.py", "config/test_config_random.py",
            "config/test_config_references.py", "config/test_config_releases.py", "config/test_config_schema.py",
            "config/test_config_schema_agrees.py", "config/test_config_units.py", "config/test_config_watch.py",
            "config/test_file_events.py",
        ),
        "clients of other makers: what is said to them on the wire is held in both runs by tests/conformance": (
            "e2e/test_apps_name_themselves.py", "e2e/test_errors_as_clients_show_them.py", "e2e/test_exec.py",
            "e2e/test_git.py", "e2e/test_git_client.py", "e2e/test_grpc_clients.py", "e2e/test_sdk_repeats.py",
            "e2e/test_smithy_core.py",
        ),
        "Redis' scripts and messages, of whose modules none is compiled: what these extend, which is, is held in both"
        " runs by stores/test_redis_fleet.py, stores/test_redis_leases.py, stores/test_redis_levels.py,"
        " stores/test_redis_share.py, stores/test_redis_weather.py and e2e/test_redis_processes.py": (
            "stores/test_redis_concurrency.py", "stores/test_redis_large_fleets.py", "stores/test_redis_line.py",
            "stores/test_redis_news.py", "stores/test_redis_outages.py", "stores/test_redis_places.py",
            "stores/test_redis_rate_lists.py", "stores/test_redis_rate_order.py", "stores/test_redis_rate_parts.py",
            "stores/test_redis_releases.py", "stores/test_redis_under_load.py", "stores/test_redis_waiting.py",
        ),
        "spans, metrics and log lines over OTLP: what is told in them is held in both runs by other tests of observe": (
            "observe/test_observe_otel.py", "observe/test_observe_otlp_metrics_and_logs.py",
        ),
        "apps whose HTTPS is intercepted: what reads and answers it is held in both runs by server/test_intercept.py": (
            "e2e/test_e2e_intercept.py",
        ),
        "how a process begins, ends and writes": (
            "e2e/test_forked.py", "e2e/test_full_disk.py", "e2e/test_stalls.py", "e2e/test_terminal.py",
            "e2e/test_told_to_end.py", "e2e/test_whole_output.py",
        ),
    },
    "compiled": {
        "the compiled modules themselves, and the memory of a process that has them": (
            "deploy/test_compiled.py", "deploy/test_freed_memory.py", "deploy/test_memory_group.py",
        ),
        "simulations: lab/test_simulated_alike.py holds that both give the same figures": (
            "lab/test_any_reports.py", "lab/test_apps_bounds.py", "lab/test_apps_played.py", "lab/test_asking_redis.py",
            "lab/test_behaviour_before.py", "lab/test_demo.py", "lab/test_drawn_weather.py", "lab/test_judge.py",
            "lab/test_lab_clock.py", "lab/test_play_workers.py", "lab/test_played_scripts.py", "lab/test_possible.py",
            "lab/test_simulate.py",
            "lab/test_simulate_fleet.py", "lab/test_simulate_limits_and_apps.py",
            "lab/test_simulate_processes.py", "lab/test_simulate_rotations.py", "lab/test_simulated_alike.py",
            "lab/test_weather.py", "lab/test_weather_bounds.py", "lab/test_weather_turns.py",
            "lab/test_weather_variants.py",
        ),
        "reloads, and workers that come and go, of whose modules none is compiled: that calls go on meanwhile is held"
        " in both runs by e2e/test_e2e_process.py and e2e/test_workers.py": (
            "e2e/test_reload_live.py", "e2e/test_workers_change.py",
        ),
        "everything at once, as it is shipped; its parts are held in both runs": ("chaos",),
        "news of a fleet's processes through Redis: held in both runs by stores/test_redis_weather.py and"
        " e2e/test_redis_processes.py": (
            "e2e/test_redis_news_processes.py", "e2e/test_redis_weather_processes.py",
        ),
        "records in shared memory, of whose modules none is compiled: what these extend, which is, is held in both runs"
        " by stores/test_shared_words.py and stores/test_calls_in_weather.py": (
            "stores/test_breaker_models.py", "stores/test_shared_processes.py", "stores/test_shared_turns.py",
        ),
        "clients of other makers: what is said to them on the wire is held in both runs by tests/conformance": (
            "e2e/test_resume_clients.py", "e2e/test_stream_clients.py", "e2e/test_stream_ends_and_clients.py",
            "e2e/test_token_limits.py",
        ),
        "listeners and connections on their way from process to process": (
            "e2e/test_take_over.py", "e2e/test_take_over_idle.py", "e2e/test_take_over_ways.py",
        ),
    },
}  # fmt: skip


#: The parts of each path, by the run that has it.
_PARTS = {run: {tuple(each.split("/")) for paths in ONCE[run].values() for each in paths} for run in RUNS}


def is_left_out(path: Path, run: str) -> bool:
    """Whether the other one of the two runs has what is at this path."""
    parts, above = path.parts, len(TESTS.parts)
    if parts[:above] != TESTS.parts:
        return False
    others = _PARTS[RUNS[1 - RUNS.index(run)]]
    return any(parts[above:end] in others for end in range(above + 1, len(parts) + 1))


def has_seed(path: Path, seed: int, run: str) -> bool:
    """Whether a test at this path, which is in this run, plays this seed there."""
    other = RUNS[1 - RUNS.index(run)]
    return is_left_out(path, other) or seed % 2 == RUNS.index(run)


def seed_of(item: pytest.Item) -> int | None:
    """The seed that a test plays; None if the test has none."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("seed")


def examples(number: int) -> int:
    """How many examples Hypothesis draws for a test that is in both runs, so that both together draw this number."""
    return number // 2 if ONE_OF_TWO in os.environ else number


def first_seed() -> int:
    """The seed of examples that are the same each time: another one in each of the two runs."""
    return RUNS.index(os.environ.get(ONE_OF_TWO, RUNS[0]))


def left_out(run: str) -> list[str]:
    """What a run leaves out, and why: a line for each reason."""
    other = RUNS[1 - RUNS.index(run)]
    lines = [f"only in the {other} run: {' '.join(paths)} ({why})" for why, paths in ONCE[other].items()]
    return [*lines, f"only in the {other} run: every other seed of the tests that are in both (a sample of chance)"]
