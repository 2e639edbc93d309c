"""`make test-gpu`: everything that is tested on a GPU, each part with a limit of time; exit code 1 if one fails.

The interpreter is used as it is. Laws and tests need pytest, and run on several processes where pytest-xdist is there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(os.environ.get("OUT", ROOT / "build" / "gpu"))
CASES = ROOT.parent / "shared" / "cases" / "run_cases.py"
SOURCES = str(ROOT / "src")


def parts() -> list[tuple[str, list[str], int]]:
    """Name, command, seconds."""
    python = sys.executable
    workers = ["-n", str(min(12, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") else []
    pytest = [python, "-m", "pytest", "-q", *workers, "-p", "no:cacheprovider", "-p", "no:benchmark", "-k", "not fork", "-m", "not long"]
    found = [
        ("kernels", [python, "tests/gpu/check_kernels.py"], 200),
        ("scatters", [python, "tests/gpu/check_scatter.py"], 200),
        ("copies", [python, "tests/gpu/check_transfer.py"], 200),
        ("products", [python, "tests/gpu/check_cublaslt.py"], 100),
        ("values, ops, transforms, schedule", [*pytest, "tests/laws/test_value.py", "tests/ops", "tests/transforms", "tests/schedule"], 400),
        ("soak", [python, "tests/gpu/soak.py"], 200),
    ]
    if CASES.exists():
        found.append(("case bank", [python, str(CASES), "--impl", "isthmus", "--device", "gpu"], 200))
    else:
        print(f"the case bank is not here ({CASES}): left out")
    return found


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    failed = []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), SOURCES])), "PYTHONUNBUFFERED": "1"}
    for name, command, seconds in parts():
        log = OUT / f"{name.split(',')[0].replace(' ', '_')}.log"
        start = time.perf_counter()
        with open(log, "w") as file:
            try:
                status = subprocess.run(command, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, timeout=seconds, check=False).returncode
            except subprocess.TimeoutExpired:
                status = 124
        took = time.perf_counter() - start
        lines = log.read_text(errors="replace").strip().splitlines()
        print(f"{'ok' if status == 0 else f'FAILED ({status})'}  {name}, {took:.0f} s: {lines[-1][:200] if lines else ''}", flush=True)
        if status:
            failed.append(name)
            print("\n".join(lines[-40:]), flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all passed", f"(logs in {OUT})")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
