"""The operators as functions of tensors."""

from typing import TYPE_CHECKING

from gradewise import _front
from gradewise.torch._operators import apply

if TYPE_CHECKING:
    from gradewise._front import *  # noqa: F403
else:
    _front.install(globals(), apply)
