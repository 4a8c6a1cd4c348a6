"""isolated_forward: runs a forward of a model that training does not notice."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

MOST_BUFFER_BYTES = 1 << 28
"""Buffers are copied, to be put back if a forward writes to them. A model with more of them is refused."""

Model = Any
"""A torch.nn.Module. `Any`, because torch is no dependency."""
Undo = Callable[[], None]


@contextmanager
def isolated_forward(*models: Model, are_sharded: bool = False) -> Iterator[None]:
    """Inside, no gradient is recorded; afterwards everything is as before, also after an exception.

    Everything: the random state of Python, numpy and torch on every device; attributes and buffers of the models and their
    modules, train or eval mode and hooks among them; gradients; the grad mode; and the cache of autocast.

    are_sharded: of the attributes only train or eval mode is put back, because the others are those of the sharding, and
    buffers only up to MOST_BUFFER_BYTES.
    """
    with ExitStack() as stack:
        state = _sharded_state if are_sharded else _module_state
        for undo in (*_random_state(models), *(each for model in models for each in state(model))):
            stack.callback(undo)
        if (torch := sys.modules.get("torch")) is not None:
            stack.callback(_forget_casts, torch)
            stack.enter_context(torch.no_grad())
        yield


def fault_of(model: Model) -> str:
    """Why a second forward of this model would not be safe, in words; "" if it is."""
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id") or type(parameter).__name__ in ("DTensor", "FlatParameter"):
            return "the weights are sharded, so a forward is a collective call, which must not be made on the side"
    modules = list(model.modules())
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in modules):
        return "the weights are sharded, so a forward is a collective call, which must not be made on the side"
    if any(_is_compiled(module) for module in modules):
        return "the model is compiled, so another shape would compile it anew, and training might change"
    if sum(int(buffer.nbytes) for buffer in model.buffers()) > MOST_BUFFER_BYTES:
        return f"the model has more than {MOST_BUFFER_BYTES / 1e6:,.0f} MB of buffers, which cannot be kept safe"
    return ""


def _is_compiled(module: Any) -> bool:
    attention = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or attention == "flex_attention"  # compiled by transformers
    )


def _random_state(models: tuple[Model, ...]) -> Iterator[Undo]:
    state = random.getstate()
    yield lambda: random.setstate(state)
    if (numpy := sys.modules.get("numpy")) is not None:
        legacy = numpy.random.get_state()
        yield lambda: numpy.random.set_state(legacy)
    if (torch := sys.modules.get("torch")) is None:
        return
    own = torch.get_rng_state()
    yield lambda: torch.set_rng_state(own)
    kinds = {parameter.device.type for model in models for parameter in model.parameters()} - {"cpu", "meta"}
    if torch.cuda.is_initialized():
        kinds.add("cuda")
    for kind in sorted(kinds):
        yield _of_device(getattr(torch, kind))


def _of_device(module: Any) -> Undo:
    """Puts back the random state of torch.cuda or another kind of device: of all of them, where that can be asked for."""
    every = "_all" if hasattr(module, "get_rng_state_all") else ""
    state = getattr(module, f"get_rng_state{every}")()
    return lambda: getattr(module, f"set_rng_state{every}")(state)


def _module_state(model: Model) -> Iterator[Undo]:
    for module in model.modules():
        yield _attributes(module)
        yield _buffers_of(module)
        for buffer in module._buffers.values():
            if buffer is not None and not buffer.is_inference():  # those can only be written to in inference mode
                yield _buffer(buffer)


def _sharded_state(model: Model) -> Iterator[Undo]:
    for module in model.modules():
        yield partial(vars(module).__setitem__, "training", module.training)
        yield _buffers_of(module)
    if sum(int(buffer.nbytes) for buffer in model.buffers()) <= MOST_BUFFER_BYTES:
        yield from (_buffer(buffer) for buffer in model.buffers() if not buffer.is_inference())


def _attributes(module: Any) -> Undo:
    """Puts back what a forward has set, such as the longest length seen. Buffers are put back one by one."""
    before = dict(vars(module))

    def undo() -> None:
        now = vars(module)
        for name in [name for name in now if name not in before]:
            del now[name]
        now.update((name, value) for name, value in before.items() if now.get(name) is not value)

    return undo


def _buffers_of(module: Any) -> Undo:
    """Puts back a buffer that a forward has replaced."""
    buffers = dict(module._buffers)

    def undo() -> None:
        own = module._buffers
        if own.keys() != buffers.keys() or any(own[name] is not buffers[name] for name in buffers):
            own.clear()
            own.update(buffers)

    return undo


def _buffer(buffer: Any) -> Undo:
    """Puts its values back. An equal one is not written to, because autograd may have kept it."""
    copy = buffer.detach().clone()

    def undo() -> None:
        if not copy.equal(buffer):
            buffer.detach().copy_(copy)

    return undo


def _forget_casts(torch: Any) -> None:
    """Weights that autocast has cast here, without gradient, must not be found by a forward that needs one."""
    if torch.is_autocast_cache_enabled():
        torch.clear_autocast_cache()
