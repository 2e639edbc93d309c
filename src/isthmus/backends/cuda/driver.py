"""One NVIDIA GPU through the CUDA driver: memory, copies, launches, graphs, events. Integers in, integers out.

`backends/cuda/simulate.py` offers the same methods without a GPU. Nothing here knows of arrays or plans. The context is
the device's primary one, so that memory can be shared with other libraries of the process. All work goes to one stream,
in order; `Driver` is used under the schedule's lock, but any thread may hold that, so each call of a thread that is not
known yet makes the context current.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from isthmus.backends.cuda.staging import Staging

LOST: Final = frozenset((214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999))  # errors after which a context is of no use
OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600


class DriverError(RuntimeError):
    """A CUDA call failed. `lost`: nothing more can be done with the device by this process. `begun`: a part of a plan was enqueued."""

    def __init__(self, call: str, code: int, words: str) -> None:
        super().__init__(f"[cuda] {call} failed: {words} (error {code}).")
        self.code = code
        self.lost = code in LOST
        self.begun = False


class Driver:
    """Device `index`, its context made and one stream."""

    simulated = False

    def __init__(self, index: int) -> None:
        from cuda.bindings import driver as cu

        self.cu = cu
        self.known = threading.local()
        self.check("cuInit", *cu.cuInit(0))
        device = self.check("cuDeviceGet", *cu.cuDeviceGet(index))
        self.context = self.check("cuDevicePrimaryCtxRetain", *cu.cuDevicePrimaryCtxRetain(device))
        self.enter()
        get = cu.CUdevice_attribute
        major = self.attribute(device, get.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self.attribute(device, get.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        self.arch = 10 * major + minor
        self.processors = self.attribute(device, get.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.name = self.check("cuDeviceGetName", *cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
        self.total_bytes: int = self.check("cuDeviceTotalMem", *cu.cuDeviceTotalMem(device))
        self.stream = self.check("cuStreamCreate", *cu.cuStreamCreate(1))  # not ordered with the default stream
        self.staging: Any = None
        self.overlap = self.overlap_attribute() if self.arch >= 90 else []

    def attribute(self, device: Any, which: Any) -> int:
        return int(self.check("cuDeviceGetAttribute", *self.cu.cuDeviceGetAttribute(which, device)))

    def overlap_attribute(self) -> list[Any]:
        """Programmatic dependent launch: a kernel may start before the one ahead of it has ended (prelude.py)."""
        cu = self.cu
        attribute = cu.CUlaunchAttribute()
        attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = cu.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attribute.value = value
        return [attribute]

    def check(self, call: str, error: Any, *result: Any) -> Any:
        if error:
            _, words = self.cu.cuGetErrorString(error)
            raise DriverError(call, int(error), words.decode() if words else "unknown")
        return result[0] if result else None

    def enter(self) -> None:
        """Make the context current in this thread."""
        if not getattr(self.known, "entered", False):
            self.check("cuCtxSetCurrent", *self.cu.cuCtxSetCurrent(self.context))
            self.known.entered = True

    # -- memory

    def allocate(self, nbytes: int) -> int:
        """The address of new device memory; 0 if there is no room."""
        self.enter()
        error, address = self.cu.cuMemAlloc(nbytes)
        if int(error) == OUT_OF_MEMORY:
            return 0
        self.check("cuMemAlloc", error)
        return int(address)

    def free(self, address: int) -> None:
        self.enter()
        self.check("cuMemFree", *self.cu.cuMemFree(address))

    def memory_info(self) -> tuple[int, int]:
        """Bytes of the device that are free, and all of them."""
        self.enter()
        error, free, total = self.cu.cuMemGetInfo()
        self.check("cuMemGetInfo", error)
        return int(free), int(total)

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of host memory that the device copies from at full speed; 0 if there is none to be had."""
        self.enter()
        error, address = self.cu.cuMemHostAlloc(nbytes, 1)  # for all contexts
        return int(address) if not error else 0

    def free_pinned(self, address: int) -> None:
        self.enter()
        self.check("cuMemFreeHost", *self.cu.cuMemFreeHost(address))

    def pin(self, address: int, nbytes: int) -> bool:
        """Make host memory that is there (whole pages) such that the device copies from it at full speed; whether it could be done."""
        self.enter()
        (error,) = self.cu.cuMemHostRegister(address, nbytes, 1)  # for all contexts
        return not error

    def unpin(self, address: int) -> None:
        self.enter()
        self.cu.cuMemHostUnregister(address)

    # -- copies, in stream order

    def upload(self, to: int, from_host: int, nbytes: int) -> None:
        """Host to device. Pageable memory may be changed when this returns; pinned memory once the stream has got here."""
        (error,) = self.cu.cuMemcpyHtoDAsync(to, from_host, nbytes, self.stream)
        if error:
            self.check("cuMemcpyHtoDAsync", error)

    def download(self, to_host: int, source: int, nbytes: int) -> None:
        """Device to host; there once the stream has got here."""
        self.enter()
        self.check("cuMemcpyDtoHAsync", *self.cu.cuMemcpyDtoHAsync(to_host, source, nbytes, self.stream))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self.enter()
        self.check("cuMemcpyDtoDAsync", *self.cu.cuMemcpyDtoDAsync(to, source, nbytes, self.stream))

    # -- large copies, done when they return; what was enqueued before comes first

    def upload_large(self, to: int, from_host: int, nbytes: int, pinned: bool) -> None:
        after = self.now()
        if pinned:
            self.check("cuMemcpyHtoDAsync", *self.cu.cuMemcpyHtoDAsync(to, from_host, nbytes, self.copying))
            self.check("cuStreamSynchronize", *self.cu.cuStreamSynchronize(self.copying))
        else:
            self.staging.up(to, from_host, nbytes, after)

    def download_large(self, to_host: int, source: int, nbytes: int, pinned: bool) -> None:
        after = self.now()
        if pinned:
            self.check("cuMemcpyDtoHAsync", *self.cu.cuMemcpyDtoHAsync(to_host, source, nbytes, self.copying))
            self.check("cuStreamSynchronize", *self.cu.cuStreamSynchronize(self.copying))
        else:
            self.staging.down(to_host, source, nbytes, after)

    def now(self) -> Any:
        """An event that comes when all that is enqueued has; the copying stream waits for it."""
        self.enter()
        cu = self.cu
        if self.staging is None:
            self.staging = Staging(self)
            self.copying = self.check("cuStreamCreate", *cu.cuStreamCreate(1))
            self.event = self.check("cuEventCreate", *cu.cuEventCreate(2))  # without a time
        self.check("cuEventRecord", *cu.cuEventRecord(self.event, self.stream))
        self.check("cuStreamWaitEvent", *cu.cuStreamWaitEvent(self.copying, self.event, 0))
        return self.event

    # -- the streams of others

    def let_wait(self, stream: int) -> None:
        """Have a stream of another library wait for all that is enqueued here; 1 is CUDA's default stream, 2 a thread's own."""
        event = self.now()
        self.check("cuStreamWaitEvent", *self.cu.cuStreamWaitEvent(stream, event, 0))

    # -- code

    def load(self, code: bytes, symbol: str, number: int) -> Any:
        """The handle of a kernel function in a cubin (or PTX)."""
        self.enter()
        module = self.check("cuModuleLoadData", *self.cu.cuModuleLoadData(code))
        return self.check("cuModuleGetFunction", *self.cu.cuModuleGetFunction(module, symbol.encode()))

    def launch(self, function: Any, blocks: int, threads: int, arguments: int, overlap: bool = False) -> None:
        """Enqueue a kernel.

        Args:
            function: Of `load`.
            blocks, threads: Of the grid, of each block.
            arguments: The address of two host addresses: of the table's address (or 0), and of the parameters if it is 0.
            overlap: Whether it may start before the kernel ahead of it has ended, where the chip knows how.
        """
        if overlap and self.overlap:
            cu = self.cu
            config = cu.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
            config.hStream = self.stream
            config.attrs = self.overlap
            config.numAttrs = 1
            (error,) = cu.cuLaunchKernelEx(config, function, arguments, 0)
        else:
            (error,) = self.cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, self.stream, arguments, 0)
        if error:
            self.check("cuLaunchKernel", error)

    # -- graphs

    def begin_capture(self) -> None:
        """From here to `end_capture` this thread's work on the stream is written down, not done."""
        self.check("cuStreamBeginCapture", *self.cu.cuStreamBeginCapture(self.stream, self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))

    def end_capture(self) -> Any:
        """The graph of what was written down, ready to run."""
        graph = self.check("cuStreamEndCapture", *self.cu.cuStreamEndCapture(self.stream))
        ready = self.check("cuGraphInstantiate", *self.cu.cuGraphInstantiate(graph, 0))
        self.cu.cuGraphDestroy(graph)
        return ready

    def run_graph(self, graph: Any) -> None:
        (error,) = self.cu.cuGraphLaunch(graph, self.stream)
        if error:
            self.check("cuGraphLaunch", error)

    def free_graph(self, graph: Any) -> None:
        self.cu.cuGraphExecDestroy(graph)

    # -- waiting

    def query(self) -> None:
        """Nothing; but an error of what was enqueued is raised."""
        (error,) = self.cu.cuStreamQuery(self.stream)
        if error and int(error) != NOT_READY:
            self.check("cuStreamQuery", error)

    def synchronize(self) -> None:
        """Wait until the stream is empty.

        Raises:
            DriverError: something on it went wrong.
        """
        self.enter()
        (error,) = self.cu.cuStreamSynchronize(self.stream)
        if error:
            self.check("cuStreamSynchronize", error)
