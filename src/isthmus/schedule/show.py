"""What the stages print under `ISTHMUS_SHOW=graph,fuse,kernel,source,time`."""

from __future__ import annotations

import os
import sys
from typing import Any


def shown() -> set[str]:
    """The stages to show."""
    return {part.strip() for part in os.environ.get("ISTHMUS_SHOW", "").split(",") if part.strip()}


def plan_made(plan: Any) -> None:
    stages = shown()
    if not stages:
        return
    out = sys.stderr
    if plan.guests:
        print(f"on the host, as the GPU has no form of it: {', '.join(plan.guests)}", file=out)
    if "graph" in stages:
        for p in plan.nodes:
            print(f"{p!r}{'  (held)' if p.held else ''}", file=out)
    if "fuse" in stages:
        print(plan_text(plan), file=out)
    if "kernel" in stages:
        for step in plan.steps:
            if step.built is not None:
                print(step.built.kernel.text(), file=out)
    if "source" in stages:
        print(plan.source, file=out)
        for step in plan.steps:
            if step.rendered is not None:
                print(step.rendered.source(), file=out)


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
