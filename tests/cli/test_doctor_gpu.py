"""What `isthmus doctor` says of GPUs, drivers and packages that are there, missing or too old."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import pytest

from isthmus import cli
from isthmus.backends.cuda import compile, find


class Library:
    """The functions of libcuda.so.1 that are asked for."""

    def __init__(self, version: int = 13000, status: int = 0, chips: tuple[int, ...] = (90,)) -> None:
        self.version = version
        self.status = status
        self.chips = chips

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.chips)
        return 0

    def cuDeviceGetAttribute(self, out: Any, which: int, device: int) -> int:
        out._obj.value = self.chips[device] // 10 if which == find.MAJOR else self.chips[device] % 10
        return 0


def said(monkeypatch: pytest.MonkeyPatch, library: Library) -> str:
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name, *rest, **more: library if name == "libcuda.so.1" else real(name, *rest, **more))
    monkeypatch.setattr(cli, "_cards", list)
    return "\n".join(f"{f.what}: {f.says} -> {f.mend}" for f in cli._gpu())


def test_a_gpu_with_all_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(monkeypatch, Library(chips=(90, 80)))
    assert "for CUDA 13.0" in text and "compute capability 9.0" in text and "compute capability 8.0" in text
    assert "compiles for sm_90" in text and "cuda-bindings" in text


@pytest.mark.parametrize(("version", "extra"), [(12080, "cuda12"), (13000, "cuda13")])
def test_missing_packages_come_with_the_command_that_brings_them(monkeypatch: pytest.MonkeyPatch, version: int, extra: str) -> None:
    monkeypatch.setattr(find, "has_packages", lambda: False)
    monkeypatch.setattr(find, "has_cublaslt", lambda: False)
    text = said(monkeypatch, Library(version))
    assert f"pip install 'isthmus[{extra}]'" in text and "the CPU is used" in text


def test_old_drivers_broken_ones_and_old_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "too old" in said(monkeypatch, Library(11040))
    assert "cuInit gives error 999" in said(monkeypatch, Library(status=999))
    assert "6.1; too old" in said(monkeypatch, Library(chips=(61,)))


def test_a_gpu_that_cannot_be_used_is_said_once_and_the_cpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISTHMUS_GPU", raising=False)
    monkeypatch.setattr(find, "has_packages", lambda: True)
    monkeypatch.setattr(find, "probe", lambda: [61])
    find.gpu_count.cache_clear()
    try:
        with pytest.warns(UserWarning, match="compute capability is 6.1"):
            assert find.gpu_count() == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert find.gpu_count() == 0
        monkeypatch.setattr(find, "probe", lambda: [90])
        find.gpu_count.cache_clear()
        assert find.gpu_count() == 1
        monkeypatch.setattr(compile, "libraries", lambda: ["libnvrtc.so.13"])
        monkeypatch.setattr(ctypes, "CDLL", _no_library)
        find.gpu_count.cache_clear()
        with pytest.warns(UserWarning, match=r"isthmus\[cuda13\]"):
            assert find.gpu_count() == 0
    finally:
        find.gpu_count.cache_clear()


def _no_library(name: str, *rest: Any, **more: Any) -> Any:
    raise OSError(name)
