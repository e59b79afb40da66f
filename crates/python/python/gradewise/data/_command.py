"""What the commands ``python -m gradewise.data...`` share."""

from __future__ import annotations

import sys
from collections.abc import Callable

from gradewise._errors import ArgumentError, DataSetError, GradewiseError


def status_of(work: Callable[[], int]) -> int:
    """The exit status of a command's work: what it returns, 1 if it failed, 2 for bad usage or input, 130 for Ctrl-C. Errors of the
    library are said in a line."""
    try:
        return work()
    except (ArgumentError, DataSetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (GradewiseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
