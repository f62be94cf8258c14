"""The machine's name, which stands beside every figure and recording."""

import platform
import sys

import pytest

from core import machine


def test_the_machine_is_asked_once_per_process(monkeypatch):
    asked = []
    monkeypatch.setattr(machine, "processor_name", lambda: asked.append("") or "A CPU")
    machine.machine_name.cache_clear()
    names = {machine.machine_name() for _ in range(3)}
    machine.machine_name.cache_clear()
    assert len(asked) == len(names) == 1 and names.pop().startswith("A CPU, ")


def test_a_mac_that_cannot_be_asked_has_the_name_of_its_architecture(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.processor_name() == platform.machine() != ""


@pytest.mark.parametrize("backend, frameworks", [("torch", {"torch"}), ("mlx", {"mlx", "mlx-lm"}), ("hash", set())])
def test_versions_are_of_what_the_figures_depend_on(monkeypatch, backend, frameworks):
    monkeypatch.setattr(machine, "version", lambda package: f"1 of {package}")
    assert set(machine.versions(backend)) - {"python", "transformers", "llguidance"} == frameworks
