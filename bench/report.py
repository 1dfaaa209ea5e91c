"""What a run prints and keeps: tables for the terminal and in Markdown, JSON, a picture, and the summary in README.md.

python bench/report.py    write the summary anew, from results/latest.json; a test keeps it current
"""

from __future__ import annotations

import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from targets import CPU, DIRECT, INTERCEPTED, TUNNEL, verdicts, without_gaps

README = Path(__file__).parent / "README.md"
BEGINS, ENDS = "<!-- made by bench/report.py from results/latest.json -->", "<!-- end of what is made -->"


def write_reports(
    folder: Path, raw: dict[str, Any], medians: dict[str, Any], machine: str, rounds: int, seconds: int
) -> None:
    """Write latest.json, latest.md and latest.svg, and print the tables. In `raw` each figure has one place for each
    round, None where the round did not yield it.
    """
    folder.mkdir(exist_ok=True)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    head = f"{when}; {machine}; {rounds} rounds of {seconds:g} s each; medians (lowest to highest)."
    (folder / "latest.json").write_text(
        json.dumps({"machine": machine, "date": when, "rounds": rounds, "seconds": seconds, "figures": raw}, indent=1)
        + "\n"
    )
    found = without_gaps(raw)
    tables = [
        head,
        "",
        *verdicts(raw),
        "",
        *cpu_table(found, medians),
        "",
        *latency_table(medians),
        "",
        *process_table(found),
    ]
    text = "\n".join(tables) + "\n"
    (folder / "latest.md").write_text(text)
    (folder / "latest.svg").write_text(picture(medians))
    README.write_text(with_summary(json.loads((folder / "latest.json").read_text())))
    print("\n" + text)


def with_summary(kept: dict[str, Any]) -> str:
    """README.md with the summary of a run."""
    head, _, rest = README.read_text().partition(BEGINS)
    return f"{head}{BEGINS}\n\n{chr(10).join(summary(kept))}\n\n{ENDS}{rest.partition(ENDS)[2]}"


def summary(kept: dict[str, Any]) -> list[str]:
    """A run in a few lines: what a call costs peers as a multiple of what it costs redrive, memory and start."""
    figures = without_gaps(kept["figures"])
    own = figures["redrive"]
    lines = [f"{kept['rounds']} rounds of {kept['seconds']:g} s each, {kept['date']}, on {kept['machine']}.", ""]
    lines += [*verdicts(kept["figures"]), "", "CPU of a call, and what it costs peers as a multiple of that:", ""]
    peers = [name for name in figures if name not in ("redrive", DIRECT, "upstream alone")]
    lines += [f"| | redrive, us | {' | '.join(f'{name}, to redrive' for name in peers)} |"]
    lines += [f"| --- | --- |{' --- |' * len(peers)}"]
    for work in (work for work in own if CPU in own[work]):
        cost = statistics.median(own[work][CPU])
        costs = [figures[name].get(work, {}).get(CPU) for name in peers]
        cells = [f"{statistics.median(each) / cost:.2f}" if each and cost else "" for each in costs]
        lines.append(f"| {work} | {cost:.1f} | {' | '.join(cells)} |")
    lines += ["", f"| | {' | '.join(['redrive', *peers])} |", f"| --- |{' --- |' * (len(peers) + 1)}"]
    for key in ("start to first answer, s", "memory at rest, MiB", "memory after the loads, MiB"):
        kept_of = [figures[name].get("process", {}).get(key) for name in ("redrive", *peers)]
        lines.append(f"| {key} | {' | '.join(f'{statistics.median(each):.2f}' if each else '' for each in kept_of)} |")
    return lines


def works_of(medians: dict[str, Any]) -> list[str]:
    """Workloads in the order in which they were met."""
    return list(dict.fromkeys(work for rows in medians.values() for work in rows if work != "process"))


def spread(values: list[float], form: str = ",.1f") -> str:
    """A median with its lowest and highest."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:{form}} ({ordered[0]:{form}} to {ordered[-1]:{form}})"


def cpu_table(raw: dict[str, Any], medians: dict[str, Any]) -> list[str]:
    """CPU microseconds for each call, and the ratio of the peer's to redrive's (above 1: redrive is cheaper)."""
    lines = ["CPU of the proxy for each call, microseconds (user + system), and how much cheaper redrive is", ""]
    lines += [
        "| workload | proxy | CPU us/call | to redrive | calls/s | failed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for work in works_of(medians):
        own = medians.get("redrive", {}).get(work, {}).get(CPU)
        for name, rows in raw.items():
            if CPU not in rows.get(work, {}):
                continue
            ratio = f"{medians[name][work][CPU] / own:.2f}" if own else ""
            rate, failed = rows[work]["calls/s"], sum(rows[work]["failed"])
            lines.append(
                f"| {work} | {name} | {spread(rows[work][CPU])} | {ratio} | {spread(rate, ',.0f')} | {failed:.0f} |"
            )
    for download in (TUNNEL, INTERCEPTED):
        rows = {name: raw[name][download] for name in raw if download in raw[name]}
        if rows:
            lines += ["", download, "", "| proxy | MiB/s | CPU ms for each GiB |", "| --- | --- | --- |"]
            for name, row in rows.items():
                used = spread(row["cpu ms/GiB"], ",.0f") if "cpu ms/GiB" in row else ""
                lines.append(f"| {name} | {spread(row['MiB/s'], ',.0f')} | {used} |")
    return lines


def latency_table(medians: dict[str, Any]) -> list[str]:
    """Added latency: what the proxy's median and 99th percentile have above the upstream's own median."""
    lines = ["Added latency, microseconds (the upstream alone taken off)", ""]
    lines += ["| workload | proxy | added p50 | added p99 |", "| --- | --- | --- | --- |"]
    for work in works_of(medians):
        alone = medians.get("upstream alone", {}).get(work, {}).get("p50 us")
        if alone is None:
            continue
        for name, rows in medians.items():
            row = rows.get(work, {})
            if "p99 us" in row:
                lines.append(f"| {work} | {name} | {row['p50 us'] - alone:,.0f} | {row['p99 us'] - alone:,.0f} |")
    return lines


def process_table(raw: dict[str, Any]) -> list[str]:
    """Start-up and memory."""
    keys = list(dict.fromkeys(key for rows in raw.values() for key in rows.get("process", {})))
    lines = ["The process", "", "| proxy | " + " | ".join(keys) + " |", "| --- |" + " --- |" * len(keys)]
    for name, rows in raw.items():
        if "process" in rows:
            cells = [spread(rows["process"][key], ",.2f") if key in rows["process"] else "" for key in keys]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def picture(medians: dict[str, Any]) -> str:
    """Bars of CPU for each call, one group a workload."""
    works = [work for work in works_of(medians) if any(rows.get(work, {}).get(CPU) for rows in medians.values())]
    rows = [
        (work, [(name, row[work][CPU]) for name, row in medians.items() if row.get(work, {}).get(CPU)])
        for work in works
    ]
    height = sum(26 + 18 * len(bars) for _, bars in rows) + 50
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="16" y="24" font-size="15">CPU microseconds of the proxy for each call (shorter is better)</text>',
    ]
    y = 50
    for work, bars in rows:
        out.append(f'<text x="16" y="{y}" font-weight="bold">{work}</text>')
        y += 8
        longest = min(max(value for _, value in bars), 6 * min(value for _, value in bars))
        for name, value in bars:
            width = min(value / longest, 1.0) * 560
            colour = "#2a6f4e" if name == "redrive" else "#9aa5b1"
            more = " (cut)" if value > longest else ""
            out.append(f'<text x="120" y="{y + 12}" text-anchor="end">{name}</text>')
            out.append(f'<rect x="128" y="{y + 2}" width="{width:.0f}" height="13" fill="{colour}"/>')
            out.append(f'<text x="{134 + width:.0f}" y="{y + 12}">{value:,.1f}{more}</text>')
            y += 18
        y += 18
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    README.write_text(with_summary(json.loads((README.parent / "results" / "latest.json").read_text())))
