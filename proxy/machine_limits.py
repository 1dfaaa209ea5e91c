"""The limits that the machine sets a process, memory and open files, where a configuration asks for more."""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.resources import enough_for, fitted, limit, memory, processes, resident, too_little_memory
from proxy.server.intercept.interception import Notify


class MachineLimits:
    """The memory that the container lets the process have, as it was at start, and its open files (`descriptors`).
    `asked_for`: the configuration in force, as its file has it.
    """

    def __init__(self, asked_for: Settings) -> None:
        self._memory, self._used = memory(), resident()
        self.asked_for = asked_for
        self.descriptors = limit()

    def fit(self, settings: Settings) -> Settings:
        """The settings with limits that fit the memory; the same object if they fit."""
        return fitted(settings, self._memory, self._used)

    def notify_few_workers_fit(self, settings: Settings, notify: Notify) -> None:
        """Report at start if the memory is too little for the processes of the configuration."""
        if line := too_little_memory(settings, self._memory, self._used):
            notify("limits", [line], memory=self._memory, workers=processes(settings.workers))

    def notify_few_files(self, settings: Settings, notify: Notify) -> None:
        """Report at start if the system's limit of open files is far too low for limits.connections."""
        wanted, enough = settings.limits.connections, enough_for(self.descriptors)
        if enough < wanted // 2:
            files = self.descriptors
            line = f"limits.connections is {wanted}, but {files} open files are enough for {enough}: see `ulimit -n`"
            notify("limits", [line], open_files=files, connections=enough)

    def notify_little_memory(self, fit: Settings, notify: Notify) -> None:
        """Report if the memory is too little for the limits of the configuration in force; `fit` is what fits of it."""
        asked = self.asked_for
        if fit is asked or self._memory is None:
            return
        line = f"{self._memory >> 20} MiB of memory are too little for the limits of the configuration: buffers.total "
        line += f"is {fit.buffers.total >> 10} KiB, not {asked.buffers.total >> 10}, "
        line += f"limits.connections {fit.limits.connections}, not {asked.limits.connections}"
        facts = {"memory": self._memory, "buffers_total": fit.buffers.total, "connections": fit.limits.connections}
        notify("limits", [line], **facts)
