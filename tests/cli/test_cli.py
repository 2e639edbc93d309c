"""The `isthmus` command."""

from __future__ import annotations

import subprocess
import sys

import pytest

import isthmus
from isthmus import cli


def test_version(capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"isthmus {isthmus.__version__}\n"


def test_doctor_finds_a_working_installation(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("isthmus works.\n")
    for what in ("Python", "llvmlite", "hot files", "threads", "kernel cache", "GPU"):
        assert what in out


def test_doctor_names_what_is_missing_and_how_to_mend_it(capsys, monkeypatch):
    monkeypatch.setattr(cli, "NEEDED", ("numpy", "no_such_package"))
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "!!  no_such_package" in out and "pip install --force-reinstall no_such_package" in out
    assert "isthmus does not work: see no_such_package." in out


def test_doctor_survives_a_check_that_fails(capsys, monkeypatch):
    def _broken():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr(cli, "CHECKS", (_broken,))
    assert cli.main(["doctor"]) == 1
    assert "OSError: no such thing" in capsys.readouterr().out


def test_cache_is_shown_and_cleared(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path))
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out.startswith("0 kernels, 0.0 MB, in ")
    (tmp_path / "kernels" / ("0" * 40)).write_bytes(b"x" * 1000)
    assert cli.main(["cache", "clear"]) == 0
    assert "removed" in capsys.readouterr().out
    monkeypatch.setenv("ISTHMUS_CACHE_LIMIT_MB", "0")
    assert cli.main(["cache"]) == 0
    assert "not kept on disk" in capsys.readouterr().out


def test_importing_isthmus_loads_nothing_else():
    code = "import isthmus, sys; print(sorted(m for m in sys.modules if m.startswith(('isthmus.', 'numpy', 'llvmlite'))))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": _source()})
    assert run.stdout.strip() == "[]"


def test_python_m_isthmus():
    run = subprocess.run([sys.executable, "-m", "isthmus", "--version"], capture_output=True, text=True, check=True, env={"PYTHONPATH": _source()})
    assert run.stdout.strip() == f"isthmus {isthmus.__version__}"


def _source() -> str:
    return str(isthmus.__path__[0]).rsplit("/", 1)[0]
