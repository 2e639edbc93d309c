"""Devices, streams, and which of them is the default.

A node is made for a stream and never moves; the defaults are read when it is made. Defaults are per process, as the
arrays of one program may be made in any thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class DeviceType(enum.Enum):
    """`cpu` or `gpu`."""

    cpu = 0
    gpu = 1

    def __repr__(self) -> str:
        return f"DeviceType.{self.name}"

    def __str__(self) -> str:
        return f"DeviceType.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return other == self
        return self is other

    def __hash__(self) -> int:
        return self.value


class Device:
    """One place that computes: a device type and a number."""

    __slots__ = ("index", "type")

    def __init__(self, type: DeviceType, index: int = 0) -> None:
        if not isinstance(type, DeviceType):
            raise TypeError(f"[Device] a DeviceType is needed (mx.cpu or mx.gpu); got {type!r}.")
        self.type = type
        self.index = index

    def __repr__(self) -> str:
        return f"Device({self.type.name}, {self.index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceType):
            return self.type is other and self.index == 0
        return isinstance(other, Device) and self.type is other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))


class Stream:
    """An order of work on a device. `number` tells streams apart in keys; `place` tells devices apart: 0 the CPU, 1 + i GPU i."""

    __slots__ = ("device", "index", "number", "place")

    def __init__(self, index: int, device: Device) -> None:
        self.index = index
        self.device = device
        self.number = len(_streams)
        self.place = 0 if device.type is DeviceType.cpu else 1 + device.index
        _streams.append(self)

    def __repr__(self) -> str:
        return f"Stream({self.device}, {self.index})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


_streams: list[Stream] = []
_default_stream: dict[Device, Stream] = {}


class Defaults:
    """The state that ops read when they make a node."""

    __slots__ = ("device", "stream")

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device = device
        self.stream = stream


def default_stream(device: Device | DeviceType) -> Stream:
    """The default stream of a device.

    Raises:
        ValueError: the device is not there.
    """
    device = as_device(device)
    check_available(device)
    found = _default_stream.get(device)
    if found is None:
        found = _default_stream[device] = Stream(sum(s.device == device for s in _streams), device)
    return found


def new_stream(device: Device | DeviceType) -> Stream:
    """A further stream on `device`."""
    device = as_device(device)
    check_available(device)
    default_stream(device)
    return Stream(sum(s.device == device for s in _streams), device)


class Gpus:
    """Who counts the GPUs: the backend that can run on them puts its function here."""

    def __init__(self) -> None:
        self.count: Callable[[], int] = lambda: 0


gpus = Gpus()


def device_count(device_type: DeviceType) -> int:
    """How many devices of a type there are."""
    return 1 if device_type is DeviceType.cpu else gpus.count()


def is_available(device: Device | DeviceType) -> bool:
    """Whether a device can be used."""
    device = as_device(device)
    return device.index < device_count(device.type)


def check_available(device: Device) -> None:
    if not is_available(device):
        raise ValueError(f"[stream] {device} is not there; `isthmus doctor` says what is found and what is missing.")


def as_device(d: Device | DeviceType) -> Device:
    if isinstance(d, DeviceType):
        return Device(d, 0)
    if not isinstance(d, Device):
        raise TypeError(f"[Device] a Device or DeviceType is needed; got {d!r}.")
    return d


_cpu = Device(DeviceType.cpu, 0)
_first = Stream(0, _cpu)
_default_stream[_cpu] = _first
defaults = Defaults(_cpu, _first)


def as_stream(s: Any) -> Stream:
    """`stream=` arguments: None (the default), a Stream, a Device or a DeviceType."""
    if s is None:
        return defaults.stream
    if isinstance(s, Stream):
        return s
    if isinstance(s, (Device, DeviceType)):
        device = as_device(s)
        return defaults.stream if device == defaults.device else default_stream(device)
    raise TypeError(f"[stream] a Stream, Device, DeviceType or None is needed; got {s!r}.")


def default_device() -> Device:
    """The device that ops run on when none is named."""
    return defaults.device


def set_default_device(device: Device | DeviceType) -> None:
    """Make `device` the one that ops run on when none is named."""
    device = as_device(device)
    defaults.stream = default_stream(device)
    defaults.device = device


def set_default_stream(stream: Stream) -> None:
    """Make `stream` the default of its device."""
    _default_stream[stream.device] = stream
    if stream.device == defaults.device:
        defaults.stream = stream


class StreamContext:
    """`with mx.stream(s):` makes `s` (a stream or a device) the default inside."""

    def __init__(self, s: Stream | Device | DeviceType) -> None:
        self.stream = s if isinstance(s, Stream) else default_stream(s)

    def __enter__(self) -> StreamContext:
        self.before = (defaults.device, defaults.stream)
        defaults.device, defaults.stream = self.stream.device, self.stream
        return self

    def __exit__(self, *exc: object) -> None:
        defaults.device, defaults.stream = self.before
