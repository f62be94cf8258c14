"""Runs app.py as a Space on ZeroGPU does, with the package `spaces` itself and without a GPU.

Only its CUDA emulation is left out, for which it looks for torch when it is imported: it wants a torch that was built
for CUDA. So a model that goes to the GPU stays where it is, in the workers too.
"""

import runpy
import sys
from pathlib import Path

sys.modules["torch"] = None  # type: ignore[assignment]
import spaces  # noqa: E402, F401

del sys.modules["torch"]
import torch  # noqa: E402

_to = torch.nn.Module.to
torch.nn.Module.to = lambda self, *place: self if place == ("cuda",) else _to(self, *place)  # type: ignore[method-assign]

runpy.run_path(str(Path(__file__).parents[1] / "app.py"), run_name="__main__")
