"""`mx.cuda`: whether NVIDIA GPUs can be used."""

from isthmus.graph.device import DeviceType, device_count


def is_available() -> bool:
    """Whether there is an NVIDIA GPU to run on."""
    return device_count(DeviceType.gpu) > 0
