"""Fixtures that several test files share."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, sync_playwright

from core.engine_torch import TorchBackend
from tests import fakes
from tests.chromium import CHROMIUM, FLAGS

# MLX's wheel for Linux brings the reference BLAS: 4 GFLOP/s in float32, where that of torch does 117. It takes what
# the process has, so the suite's products are torch's; what is put together of them is MLX's.
if sys.platform == "linux" and (products := Path(torch.__file__).parent / "lib" / "libtorch_cpu.so").exists():
    ctypes.CDLL(str(products), mode=ctypes.RTLD_GLOBAL)

# Two processes share two cores: threads that wait for each other would take them from the other one.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # for processes that a test starts
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of a tiny random model: `checkpoint("llama", "qwen")` is a Llama with Qwen's kind of tokenizer."""

    @cache
    def made(architecture: str, lexicon: str) -> Path:
        return fakes.checkpoint(tmp_path_factory.mktemp("checkpoint"), architecture, fakes.lexicon(lexicon))

    return made


@pytest.fixture(scope="session")
def tiny(checkpoint: Callable[[str, str], Path]) -> Callable[..., TorchBackend]:
    """The backend of a tiny random model, shared: `tiny("llama", "qwen")`."""

    @cache
    def loaded(architecture: str, lexicon: str = "qwen", dtype: str = "float32") -> TorchBackend:
        return TorchBackend.load(checkpoint(architecture, lexicon), dtype=dtype, device="cpu")

    return loaded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with the shared browser last: while Playwright is there its event loop runs, and no other can.

    A file's tests stay in one process, for their servers and models; so do its tests in the browser.
    """
    items.sort(key=_needs_browser)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(f"{item.path.name}{' in a browser' * _needs_browser(item)}"))


def _needs_browser(item: pytest.Item) -> bool:
    return "browser" in item.fixturenames


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
