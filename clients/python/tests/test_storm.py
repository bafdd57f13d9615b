"""The short storm."""

from __future__ import annotations

from pathlib import Path

import storm


def test_no_second_holder_and_nothing_stuck(tmp_path: Path) -> None:
    counts = storm.storm(tmp_path, *storm.PRESETS["short"])
    assert counts["faults"] == []
    assert (counts["disorder"], counts["stuck"]) == (0, 0), counts
    assert "held" in str(counts["said"])
