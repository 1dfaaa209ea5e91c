"""The metrics of the contract's section 10, sent over OTLP/HTTP by OpenTelemetry's exporter (extra `otel`).

The figures and names are those of `/metrics` (`proxy.observe.exposition`). Counters and histograms are cumulative since
the start of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from proxy import __version__
from proxy.observe.exposition import Gauges, families
from proxy.observe.metrics import Metrics
from proxy.observe.otel_export import CLOSING, Trouble, connected, own_resource, report_to

#: Units by the end of a metric's name (UCUM).
_UNITS = {"seconds": "s", "bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class MetricSender:
    """The sender of the metrics of a process. `began`: the time at which the process began (seconds since 1970)."""

    def __init__(self, began: float, trouble: Trouble) -> None:
        report_to(trouble)
        self._began = int(began * 1e9)
        self._resource = own_resource()
        self._scope = InstrumentationScope("redrive", __version__)
        self._exporter: OTLPMetricExporter = connected(OTLPMetricExporter)
        self._thread: threading.Thread | None = None  # the one that sends, or has sent

    def send(self, metrics: Metrics, gauges: Gauges, now: float) -> None:
        """Send the figures as they are at the time `now` (seconds since 1970), in a thread that does not delay the end
        of the process. While earlier figures still wait for the collector, new ones are left out.
        """
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._export, args=(metrics, gauges, now), daemon=True)
            self._thread.start()

    def _export(self, metrics: Metrics, gauges: Gauges, now: float) -> None:
        at = int(now * 1e9)
        found = [self._metric(family, at) for family in families(metrics, gauges)]
        scope = ScopeMetrics(self._scope, [metric for metric in found if metric.data.data_points], "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        """Wait for what is being sent, and then give it up, within a bounded time."""
        if self._thread is not None:
            self._thread.join(CLOSING)
        last = threading.Thread(target=self._exporter.shutdown, daemon=True)
        last.start()
        last.join(CLOSING)

    def _metric(self, family: Any, at: int) -> Metric:
        name = family.name
        data: Sum | Gauge | Histogram
        if family.type == "histogram":
            data = Histogram(self._histograms(family.samples, at), _CUMULATIVE)
        elif family.type == "counter":
            name = f"{name}_total"
            data = Sum(self._numbers(family.samples, at), _CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(self._numbers(family.samples, at))
        return Metric(name, family.documentation, _UNITS.get(family.name.rpartition("_")[2], "1"), data)

    def _numbers(self, samples: Iterable[Any], at: int) -> list[NumberDataPoint]:
        return [NumberDataPoint(dict(each.labels), self._began, at, float(each.value)) for each in samples]

    def _histograms(self, samples: Iterable[Any], at: int) -> list[HistogramDataPoint]:
        """The data points of the samples of a Prometheus histogram, whose buckets are cumulative. `at`: the time of the
        points, in nanoseconds.
        """
        points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in samples:
            labels = {name: value for name, value in sample.labels.items() if name != "le"}
            point = points.setdefault(tuple(labels.items()), {"labels": labels, "upto": [], "sum": 0.0})
            if sample.name.endswith("_bucket"):
                point["upto"].append((float(sample.labels["le"]), int(sample.value)))
            elif sample.name.endswith("_sum"):
                point["sum"] = sample.value
        return [self._histogram(point, at) for point in points.values()]

    def _histogram(self, point: Mapping[str, Any], at: int) -> HistogramDataPoint:
        bounds, upto = zip(*point["upto"], strict=True)
        counts = [count - below for count, below in zip(upto, (0, *upto), strict=False)]
        smallest: Any = None  # not measured
        return HistogramDataPoint(
            point["labels"], self._began, at, upto[-1], point["sum"], counts, bounds[:-1], smallest, smallest
        )
