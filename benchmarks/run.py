"""Runs the paired benchmarks one after the other and writes benchmarks/results/<machine>-<date>.md.

    make bench
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = {
    "mnist_mlp.py": "A training step",
    "graph.py": "The graph",
    "kernels.py": "Kernels",
    "matmul.py": "Matrix products",
    "mathlib.py": "Math functions",
}


def machine() -> str:
    """The CPU's name and its count, as words for a file's name."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else ():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    return f"{name} x{len(os.sched_getaffinity(0))}"


def versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in ("numpy", "scipy", "llvmlite", "torch", "jax", "mlx"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def main() -> None:
    names = sys.argv[1:] or list(SCRIPTS)
    today = datetime.date.today().isoformat()
    compiled = HERE.parent / "build" / "mypyc"
    lines = [f"# {machine()}, {today}", "", f"{versions()}.", ""]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    lines += [f"Commit {commit}; `make bench`; load at the start {os.getloadavg()[0]:.1f}. Times of one run, compare within a table only.", ""]
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    for name in names:
        builds = [("", env)]
        if name == "graph.py" and compiled.exists():
            builds.append((", compiled by mypyc", dict(env, PYTHONPATH=str(compiled))))
        for how, environment in builds:
            print(f"{name}{how} ...", file=sys.stderr)
            run = subprocess.run([sys.executable, str(HERE / name)], capture_output=True, text=True, env=environment)
            lines += [f"## {SCRIPTS[name]}{how}", "", f"`python benchmarks/{name}`", "", run.stdout.strip(), ""]
            if run.returncode:
                lines += ["It failed:", "", "```", run.stderr.strip()[-2000:], "```", ""]
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    path = folder / (re.sub(r"[^A-Za-z0-9.]+", "-", machine()).strip("-") + f"-{today}.md")
    path.write_text("\n".join(lines))
    print(path)


if __name__ == "__main__":
    main()
