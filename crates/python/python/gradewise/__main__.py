"""The program ``gradewise``, as ``python -m gradewise`` and as the console script."""

import signal
import sys

from gradewise import _core
from gradewise._program import launcher


def main() -> int:
    """Runs the program with the arguments of this process.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad usage or input.
    """
    # Python's handler would wait for the interpreter, which waits for the program; where the program has a handler of its own, that serves.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.main(sys.argv[1:], launcher())


if __name__ == "__main__":
    sys.exit(main())
