"""Progress for logs: a line every hundred tests instead of a dot for each."""

import sys
import time

import pytest

EVERY = 100


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if not (is_worker or sys.stdout.isatty() or config.get_verbosity()):
        config.pluginmanager.register(Progress(config))


class Progress:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = time.monotonic()
        self.done = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str] | None:
        return ("passed", "", "PASSED") if report.when == "call" and report.passed else None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.done += report.when == "teardown"
        if report.when == "teardown" and self.done % EVERY == 0:
            writer = self.config.get_terminal_writer()
            minutes, seconds = divmod(round(time.monotonic() - self.began), 60)
            if writer.width_of_current_line:  # letters of failed and skipped tests
                writer.line()
            writer.line(f"{self.done} tests, {minutes}:{seconds:02} min")
