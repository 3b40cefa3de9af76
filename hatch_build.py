"""Compile `src/randfield/kernels.c` while the package is built, if there is a C compiler; without one it does as well.

The library lies beside its source and is named after it (see `kernels.py`), so that what was made from another version
is never loaded. A wheel that holds it is one for this platform, any other a pure one.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
# Every x86 of the last ten years has these; `kernels.py` asks before it loads what needs them.
VECTORS = ["-mavx2", "-mfma"] if platform.machine().lower() in ("x86_64", "amd64") else []


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("RANDFIELD_KERNELS") == "0":
            return
        source = Path(self.root) / "src" / "randfield" / "kernels.c"
        made = source.with_name(f"libkernels-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so")
        if not made.exists() and not self._compiled(source, made):
            return
        for old in set(source.parent.glob("libkernels-*.so")) - {made}:
            old.unlink()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["force_include"][str(made)] = f"randfield/{made.name}"

    def _compiled(self, source: Path, made: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        unfinished = made.with_suffix(f".{os.getpid()}")
        command = [*compiler, *FLAGS, *VECTORS, str(source), "-o", str(unfinished), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            unfinished.replace(made)
        except (OSError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"randfield: its kernels were not compiled, PyTorch will do their work: {error}")
            unfinished.unlink(missing_ok=True)
            return False
        return True
