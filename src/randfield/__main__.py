"""The entry point of the command line, which says what to install where its extra is missing."""

import sys


def main() -> None:
    try:
        from randfield.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        sys.exit(f"randfield: the command line needs {error.name}; install it with: pip install 'randfield[cli]'")
    except KeyboardInterrupt:  # importing PyTorch takes seconds
        sys.exit(130)
    app()


if __name__ == "__main__":
    main()
