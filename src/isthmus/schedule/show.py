"""What the stages print under `ISTHMUS_SHOW=graph,fuse,kernel,source,time`."""

from __future__ import annotations

import os
import sys
from typing import Any

STAGES = ("graph", "fuse", "kernel", "source", "time")


_unknown: set[str] = set()  # stages that were said not to exist


def shown() -> set[str]:
    """The stages to show."""
    stages = {part.strip() for part in os.environ.get("ISTHMUS_SHOW", "").split(",") if part.strip()}
    for stage in sorted(stages.difference(STAGES, _unknown)):
        _unknown.add(stage)
        print(f"ISTHMUS_SHOW names {stage!r}; there are {', '.join(STAGES)}.", file=sys.stderr)
    return stages


def plan_made(plan: Any) -> None:
    stages = shown()
    if not stages:
        return
    out = sys.stderr
    if plan.guests:
        print(f"on the host, as the GPU has no form of it: {', '.join(plan.guests)}", file=out)
    if "graph" in stages:
        print(f"-- graph: {len(plan.nodes)} nodes", file=out)
        for p in plan.nodes:
            print(f"{p!r}{'  (held)' if p.held else ''}", file=out)
    if "fuse" in stages:
        print(f"-- fuse: {len(plan.steps)} launches", file=out)
        print(plan_text(plan), file=out)
    if "kernel" in stages:
        print("-- kernel", file=out)
        for step in plan.steps:
            if step.built is not None:
                print(step.built.kernel.text(), file=out)
    if "source" in stages:
        print("-- source of the plan", file=out)
        print(plan.source, file=out)


_variants: dict[int, int] = {}  # how many forms of a kernel have been shown


def bound(plan: Any) -> None:
    """The source of kernels in forms that a plan's sizes have just asked for."""
    for step in plan.steps:
        r = step.rendered
        if r is not None and len(r.addresses) > _variants.get(id(r), 0):
            _variants[id(r)] = len(r.addresses)
            print(f"-- source of {step.name}", file=sys.stderr)
            print(r.source(), file=sys.stderr)


def plan_text(plan: Any) -> str:
    """A line a launch: what it is, what it reads and writes."""
    lines = []
    for step in plan.steps:
        reads = " ".join(f"%{n}" for n in step.reads)
        writes = " ".join(f"%{n}" + ("!" if n in plan.same else "") for n in step.writes)
        lines.append(f"{step.name}: {writes} <- {reads}" + ("  (copies its base)" if step.copies else ""))
    return "\n".join(lines)


def times(plan: Any, binding: Any, took: list[float]) -> None:
    """A line a launch with its time (the driver's own call, 0.3 us, included) and units; then the sum."""
    step_of = dict(zip(plan.step_at, plan.steps, strict=True))
    for k, seconds in enumerate(took):
        params, units = binding.program[4 * k + 1], binding.program[4 * k + 2]
        step = step_of.get(params)
        name = "copy" if step is None else f"{step.name} " + " ".join(f"%{n}" for n in step.writes)
        print(f"{seconds * 1e6:10.1f} us  {name} ({units} units)", file=sys.stderr)
    print(f"{sum(took) * 1e6:10.1f} us  in {len(took)} launches", file=sys.stderr)
