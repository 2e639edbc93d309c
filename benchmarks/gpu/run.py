"""isthmus on an NVIDIA GPU beside torch and JAX: runs the tables, writes OUT/report.md and OUT/report.json.

    python benchmarks/gpu/run.py --out DIR [--only bandwidth,launch] [--quick] [--budget 540]
    python benchmarks/gpu/run.py --out DIR --device cpu --quick --tiny                        # do the scripts run? no figures
    ISTHMUS_GPU=simulated python benchmarks/gpu/run.py --out DIR --quick --tiny               # the same by the GPU's way

Each table runs in a process of its own. A row that fails is reported by its exception, and the rest goes on: where the
process died, hung, or lost the GPU, a new one takes up behind that row. When the budget (seconds) is spent, what is
left is reported as not reached, so that a report stands before a machine's limit on commands.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from common import Item, Setup, context_lost, environment

HERE = Path(__file__).resolve().parent
TABLES = {  # title; in the order in which they run: what matters most and takes least comes first
    "launch": "Small kernels",
    "mnist": "MNIST MLP, a training step (batch 256, SGD, plain loop)",
    "bandwidth": "Bandwidth (65536x4096; long rows 2048x131072; A, B 8192x8192)",
    "matmul": "Matrix products",
    "gather": "Gather and scatter-add (float32, 2^20 random rows)",
    "transfer": "Transfers of 1 GB",
    "start": "Start of a process",
}
LOST = 3  # a child's exit status when the GPU answers no more


# --- the child: one table ---


def child(name: str, skip: int, setup: Setup) -> int:
    items = importlib.import_module(name).items(setup)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints goes to stderr

    def say(**line: Any) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    say(count=len(items), items=[describe(item) for item in items])
    for k, item in enumerate(items):
        if k < skip:
            continue
        say(begin=k)
        start = time.perf_counter()
        try:
            found = item.run()
        except Exception as e:
            traceback.print_exc()
            found = {"failed": f"{type(e).__name__}: {e}"[:600]}
        say(end=k, found={**found, "took_s": time.perf_counter() - start})
        if "failed" in found and ("lost" in found["failed"] or context_lost(setup)):
            return LOST
    return 0


def describe(item: Item) -> dict[str, Any]:
    return {"row": item.row, "who": item.who, "unit": item.unit, "goal": item.goal, "peers": item.peers}


# --- the parent ---


def run_table(name: str, args: argparse.Namespace, end: float, log: Any) -> list[dict[str, Any]]:
    """The items of a table, described, each with its `found`."""
    items: list[dict[str, Any]] = []
    skip = 0
    while True:
        command = [sys.executable, str(HERE / "run.py"), "--child", name, "--skip", str(skip), "--device", args.device]
        command += ["--quick"] * args.quick + ["--tiny"] * args.tiny
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment(args.device), cwd=HERE.parents[1], start_new_session=True
        )
        inbox: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=lambda p=process, q=inbox: [*map(q.put, p.stdout), q.put(None)], daemon=True).start()
        first, running, why, noted = skip, None, None, os.path.getsize(log.name)
        while True:
            left = end - time.monotonic()
            try:
                text = inbox.get(timeout=max(0.0, min(args.row_timeout, left)))
            except queue.Empty:
                why = f"no answer within {args.row_timeout:.0f} s" if left > args.row_timeout else "not reached: the budget was spent"
                os.killpg(process.pid, signal.SIGKILL)  # with what it started
                break
            if text is None:
                break
            line = json.loads(text)
            if "items" in line:
                items = items or line["items"]
            elif "begin" in line:
                running, noted = line["begin"], os.path.getsize(log.name)
            else:
                item = items[line["end"]]
                item["found"] = line["found"]
                skip, running = line["end"] + 1, None
                print(f"  {item['row']:60s} {item['who']:14s} {brief(item)}  ({line['found']['took_s']:.1f} s)", file=sys.stderr)
        status = process.wait()
        if time.monotonic() >= end:
            break
        if running is not None:
            items[running]["found"] = {"failed": why or f"the process died of {cause(status)}; {tail(log, noted)}"}
            print(f"  {items[running]['row']:60s} {items[running]['who']:14s} {brief(items[running])}", file=sys.stderr)
            skip = running + 1
        elif not items:
            return [
                {
                    "row": name,
                    "who": "isthmus",
                    "unit": "",
                    "goal": None,
                    "peers": None,
                    "found": {"failed": why or f"the table did not start; {tail(log, noted)}"},
                }
            ]
        elif status == 0 or skip == first:  # it is through, or would only die again
            break
        if skip >= len(items):
            break
    for item in items:
        item.setdefault("found", {"failed": "not reached: the budget was spent" if time.monotonic() >= end else f"not reached; {tail(log)}"})
    return items or [{"row": name, "who": "isthmus", "unit": "", "goal": None, "peers": None, "found": {"failed": "not reached: the budget was spent"}}]


def tail(log: Any, start: int = 0) -> str:
    """The last line of what was written to the log after `start`."""
    lines = Path(log.name).read_bytes()[start:].decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing on stderr"


def cause(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def brief(item: dict[str, Any]) -> str:
    found = item["found"]
    return found["failed"][:100] if "failed" in found else f"{number(found['value'])} {item['unit']}"


def number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.3g}"


def more_is_better(unit: str) -> bool:
    return unit in ("GB/s", "TFLOP/s")


def table(items: list[dict[str, Any]]) -> list[str]:
    """Lines of Markdown: a row for each isthmus measurement, its peers beside it."""
    cells: dict[tuple[str, str], dict[str, Any]] = {(i["row"], i["who"]): i for i in items}
    peers = list(dict.fromkeys(i["who"] for i in items if i["who"] != "isthmus"))
    rows = list(dict.fromkeys(i["row"] for i in items if i["who"] == "isthmus"))
    rows = list(dict.fromkeys(i["row"] for i in items if i["row"] in rows or not any(i["row"] == j["peers"] for j in items)))
    failures: list[str] = []

    def value(row: str, who: str) -> float | None:
        item = cells.get((row, who))
        return item["found"].get("value") if item else None

    def cell(row: str, who: str) -> str:
        item = cells.get((row, who))
        if item is None:
            return ""
        if "failed" in item["found"]:
            line = f"{item['row']}, {who}: {item['found']['failed']}"
            if line not in failures:
                failures.append(line)
            return f"failed ({failures.index(line) + 1})"
        note = item["found"].get("note")
        return number(item["found"]["value"]) + (f" ({note})" if note else "")

    lines = ["| work | unit | isthmus | " + "".join(f"{p} | " for p in peers) + "times the best peer | goal | reached | one eval, us | error |"]
    lines.append("|---" * (len(peers) + 8) + "|")
    for row in rows:
        ours = cells.get((row, "isthmus"))
        item = ours or next(i for i in items if i["row"] == row)
        unit, beside = item["unit"], row
        if not any((row, p) in cells for p in peers) and item["peers"]:
            beside = item["peers"]
        theirs = [v for p in peers if (v := value(beside, p))]
        mine = value(row, "isthmus")
        ratio = goal = reached = alone = error = ""
        if mine and theirs:
            ratio = f"{mine / max(theirs) if more_is_better(unit) else min(theirs) / mine:.2f}"
        wanted = item["goal"]
        if isinstance(wanted, list):
            share, of = wanted
            base = value(of, "torch") or value(beside, of)
            if not more_is_better(unit):
                share = 1 / share
            wanted = share * base if base else None
        if wanted:
            goal = number(wanted)
            if mine:
                reached = "yes" if (mine >= wanted if more_is_better(unit) else mine <= wanted) else f"no ({mine / wanted:.2f})"
        if ours:
            alone, error = (f"{v:.{d}}" if (v := ours["found"].get(k)) is not None else "" for k, d in (("alone_us", "0f"), ("error", "1e")))
        lines.append(
            f"| {row} | {unit} | {cell(row, 'isthmus')} | "
            + "".join(f"{cell(beside, p)} | " for p in peers)
            + f"{ratio} | {goal} | {reached} | {alone} | {error} |"
        )
    return lines + ([""] + [f"{k}. {' '.join(text.split())}" for k, text in enumerate(failures, 1)] if failures else [])


def card() -> dict[str, str]:
    query = "name,driver_version,memory.total,power.limit"
    try:
        run = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True)
        return dict(zip(query.split(","), (x.strip() for x in run.stdout.splitlines()[0].split(","))))
    except (OSError, subprocess.SubprocessError, IndexError):
        return {"name": f"no GPU ({platform.processor() or platform.machine()})"}


def state() -> str:
    query = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
    try:
        run = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True)
        return run.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in ("numpy", "torch", "jax", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cublas", "llvmlite"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    probe = "import isthmus, isthmus.graph.node as n; print(isthmus.__version__, 'mypyc' if n.__file__.endswith('.so') else 'not compiled', isthmus.__file__)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=environment("cpu"), cwd=HERE.parents[1])
    found["isthmus"] = run.stdout.strip() or tail_of(run.stderr)
    try:
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    except OSError:
        commit = ""
    found["commit"] = commit or "unknown"
    return found


def tail_of(text: str) -> str:
    return (text.strip().splitlines() or ["?"])[-1]


def write(out: Path, head: dict[str, Any], tables: dict[str, list[dict[str, Any]]]) -> None:
    (out / "report.json").write_text(json.dumps({**head, "tables": tables}, indent=1))
    gpu = head["card"]
    lines = [f"# {gpu['name']}, {head['date'][:10]}", "", ", ".join(f"{k} {v}" for k, v in {**gpu, **head["versions"]}.items() if k != "name") + ".", ""]
    lines += [f"`{head['command']}`, {head['date']}, load at the start {head['load']:.1f}.", ""]
    lines += [f"GPU before: {head['before'] or '-'}; after the last table: {head.get('after') or '-'} (SM clock, memory clock, temperature, power).", ""]
    if head["tiny"] or head["device"] == "cpu":
        lines += ["**A trial of the scripts: these are no figures.**", ""]
    lines += [
        "GB/s count the bytes of inputs and outputs once each. A time is the median of batches of enqueued calls with one wait each;",
        "'one eval' is a call that is waited for by itself. 'times the best peer': above 1 isthmus is faster. Errors are relative, against float64.",
    ]
    for name, items in tables.items():
        lines += ["", f"## {name}: {TABLES[name]}", "", *table(items)]
    (out / "report.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu"))
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no torch.compile, JAX only where it is cheap")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--tiny", action="store_true", help="sizes at which everything runs in seconds: a trial, no figures")
    parser.add_argument("--budget", type=float, default=540, help="seconds for everything")
    parser.add_argument("--row-timeout", type=float, default=75, help="seconds after which a row counts as hung")
    parser.add_argument("--child")
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    if args.child:
        return child(args.child, args.skip, Setup(args.device, args.quick, args.tiny))
    names = args.only.split(",")
    if unknown := set(names) - set(TABLES):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    end = time.monotonic() + args.budget
    args.out.mkdir(parents=True, exist_ok=True)
    head: dict[str, Any] = {
        "card": card(), "versions": versions(), "date": datetime.datetime.now().isoformat(timespec="seconds"), "load": os.getloadavg()[0],
        "command": shlex.join(["python", *sys.argv]), "device": args.device, "tiny": args.tiny, "quick": args.quick, "before": state(),
    }  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        start = time.monotonic()
        print(f"{name} ...", file=sys.stderr)
        with open(args.out / f"{name}.log", "w") as log:
            tables[name] = run_table(name, args, end, log)
        head.setdefault("took_s", {})[name] = round(time.monotonic() - start, 1)
        head["after"] = state()
        write(args.out, head, tables)
    for name, items in tables.items():
        print("\n".join([f"{name}, {head['took_s'][name]} s", *short(items), ""]))
    print(args.out / "report.md")
    return 0


def short(items: list[dict[str, Any]]) -> list[str]:
    """The table for a terminal."""
    text = table(items)
    rows = [[c.strip() for c in line.strip("|").split("|")][:-2] for line in text if line.startswith("| ")]
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows]
    return lines + [line[:160] for line in text if line and not line.startswith("|")]


if __name__ == "__main__":
    sys.exit(main())
