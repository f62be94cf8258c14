"""Loading: from a model's name, or a server's URL, to an engine that is warm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.address import is_url
from core.backend import BackendMissing, ModelUnsupported
from core.backends import candidates
from core.models import Progress, resolve
from core.owner import Job, Owner

if TYPE_CHECKING:
    from core.engine import Engine


@dataclass(frozen=True)
class Load:
    """What is to be loaded, and how: the arguments of `Engine.load`."""

    name: str
    backend: str
    dtype: str
    offline: bool
    cache_entries: int
    cache_bytes: int
    progress: Progress
    queue: int | None
    timeout_s: float | None

    @property
    def is_served(self) -> bool:
        return is_url(self.name)

    def here(self, kind: type[Engine], **server: Any) -> Engine:
        """On a device of this machine."""
        if given := [name for name, value in server.items() if value is not None]:
            raise BackendMissing(f"{', '.join(given)}: only for a vLLM server; give its url as the model")
        owner, refused = Owner(self.queue, self.timeout_s), []
        for candidate in candidates(self.backend):
            found = resolve(
                self.name,
                offline=self.offline,
                accelerator=candidate.kind.accelerated(),
                mlx=candidate.mlx,
                progress=self.progress,
            )
            why = "; ".join(filter(None, (found.why, candidate.why, *(f"MLX: {reason}" for reason in refused))))
            self.progress(f"loading {found.name}", None)

            def loaded(job: Job) -> Engine:
                read = candidate.kind.load(found.directory, dtype=self.dtype)
                caches = {"cache_entries": self.cache_entries, "cache_bytes": self.cache_bytes}
                engine = kind(read, found.name, why, owner, **caches)
                self.progress(f"warming up {found.name}", None)
                engine.warm_up()
                return engine

            try:
                return owner.submit(loaded).result()
            except ModelUnsupported as problem:  # the next backend, if there is one, may read what this one does not
                refused.append(str(problem))
        raise ModelUnsupported("; ".join(refused))

    def served(self, **server: Any) -> Engine:
        """On vLLM servers."""
        from core.engine_served import connected

        if self.backend not in ("auto", "vllm"):
            raise BackendMissing(f"a url is a vLLM server's; use --backend vllm or auto, not {self.backend}")
        if self.dtype != "auto":
            raise BackendMissing(f"dtype {self.dtype} is the vLLM server's own to choose; start it with --dtype")
        return connected(self, **{name: value for name, value in server.items() if value is not None})
