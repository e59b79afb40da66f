"""How operators see the parameters of the published modules."""

from gradewise.torch._operators import View

# [out, in, grades] or [out, in] with the axes in the opposite order, [1, features, …] without the first axis, [1, features, 1] and
# [1, 1, features] as lists.
TURNED = View(lambda weight: weight.permute(2, 1, 0), lambda gradient: gradient.permute(2, 1, 0), "reversed")
TRANSPOSED = View(lambda weight: weight.T, lambda gradient: gradient.T, "reversed")
ROWS = View(lambda rows: rows.squeeze(0), lambda gradient: gradient.unsqueeze(0), "row")
LISTED = View(lambda bias: bias.view(-1), lambda gradient: gradient.view(1, -1, 1), "list")
LAST = View(lambda bias: bias.view(-1), lambda gradient: gradient.view(1, 1, -1), "last")
