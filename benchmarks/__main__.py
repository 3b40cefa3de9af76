"""python -m benchmarks [subject …]: see `benchmarks`, and `python -m benchmarks --help`."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["accelerator"]:  # a rented machine may have torch and torchvision and nothing else
        from benchmarks.accelerator import main as accelerator

        sys.exit(accelerator(sys.argv[2:]))
    try:
        from benchmarks.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        sys.exit(f"benchmarks: the command line needs {error.name}; install it with: pip install -e '.[cli]'")
    app()


if __name__ == "__main__":
    main()
