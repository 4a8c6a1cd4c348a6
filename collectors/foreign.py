"""Types of objects from other packages. They are `Any`, because neither torch nor a trainer is a dependency."""

from typing import Any

Tensor = Any
"""A torch.Tensor."""
Trainer = Any
"""A trainer's own object."""
