from __future__ import annotations

from pathlib import Path

from scripts.monitoring_docs import renewed
from tests.monitor.subjects import subject

from seekserve.monitor.files import all_alerts
from seekserve.monitor.reference import alert_delay_s
from seekserve_backend.contract.metric_names import FAMILIES


def test_the_documentation_is_in_step_with_the_data(repository_root: Path) -> None:
    text = (repository_root / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert renewed(text) == text, "run scripts/monitoring_docs.py"
    for family in FAMILIES:
        assert f"`{family.name}`" in text


def test_an_open_breaker_is_told_within_a_scrape_an_evaluation_and_the_wait_of_the_group() -> None:
    alerts = {alert.name: alert for alert in all_alerts(subject())}
    assert alert_delay_s(alerts["SeekserveBreakerOpen"], subject(scrape_interval_s=10).choices) == 1 + 10 + 10 + 5
    assert alert_delay_s(alerts["SeekserveRung1"], subject(scrape_interval_s=10).choices) == 1 + 10 + 10 + 30 + 5
