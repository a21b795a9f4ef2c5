"""The console script: runs the command line so that Ctrl-C is quiet while Python is still loading it."""

import sys

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it."""
    try:
        from wordline import main as run  # here, because an import takes a second and can be interrupted as well
        run()
    except KeyboardInterrupt:
        print("\nwordline: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
