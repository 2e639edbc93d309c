"""`mx.cuda`: whether NVIDIA GPUs can be used. Where they can, the first one is the default device."""

from isthmus.backends.cuda.find import gpu_count
from isthmus.graph.device import Device, DeviceType, device_count, gpus, set_default_device

gpus.count = gpu_count
if gpu_count():
    set_default_device(Device(DeviceType.gpu))


def is_available() -> bool:
    """Whether there is an NVIDIA GPU to run on."""
    return device_count(DeviceType.gpu) > 0
