"""verl on machines without an accelerator.

verl asks one global platform object what its device is called and how processes talk; it ships those of accelerators.
Importing this module gives it one for the CPU where there is no GPU, and must come before verl's engines are imported,
since they ask once, at import. Goes away when verl ships such a platform.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import set_platform
from verl.plugin.platform.platform_base import PlatformBase


class CpuPlatform(PlatformBase):  # type: ignore[misc]  # verl is not typed
    """The CPU as a device; collectives through gloo. What only accelerators have does nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module: ModuleType = torch.cpu

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"  # verl only ever passes it on to `Tensor.to`

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_DEVICES"  # which nothing reads

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


if not torch.cuda.is_available():
    set_platform(CpuPlatform())
