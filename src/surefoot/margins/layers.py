"""Tables of the modules and functions that bounds are known for.

Every entry is a builder. A builder takes the network under construction and the arguments of a call of the model. The
builder adds layers to the network and returns the output of the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot.margins.affine import convolution, dense, nonnegative, scaling
from surefoot.margins.builder import ROWS, Builder, Live, NotBounded
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.network import Layer, Sum
from surefoot.margins.relaxation import GELU, GELU_TANH, RELU, TANH

__all__ = ["FUNCTIONS", "MODULES"]


def _pair(value: Any) -> tuple[int, int]:
    """One number twice, or two numbers."""
    first, second = value if isinstance(value, Sequence) else (value, value)
    return int(first), int(second)


def _same(build: Builder, x: Live, *_: Any, **__: Any) -> Live:
    """A call that returns its input."""
    return x


def _linear(build: Builder, x: Live, weight: Tensor, bias: Tensor | None = None) -> Live:
    """A linear layer."""
    if isinstance(weight, Live) or isinstance(bias, Live):
        raise NotBounded("with weights that depend on the input")
    return build.add(dense(weight, bias), x)


def _conv2d(
    build: Builder,
    x: Live,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Live:
    """A convolution."""
    if isinstance(weight, Live) or isinstance(bias, Live):
        raise NotBounded("with weights that depend on the input")
    around = padding if isinstance(padding, str) else _pair(padding)
    if around == "valid":
        around = (0, 0)
    return build.add(convolution(weight, bias, _pair(stride), around, _pair(dilation), groups), x)


def _convolution_module(build: Builder, module: Any, x: Live) -> Live:
    """A `nn.Conv2d`."""
    if module.padding_mode != "zeros":
        raise NotBounded(f"with padding_mode={module.padding_mode!r}")
    settings = module.stride, module.padding, module.dilation, module.groups
    return _conv2d(build, x, module.weight, module.bias, *settings)


def _batch_norm(build: Builder, module: Any, x: Live) -> Live:
    """Batch norm in eval mode: an affine map."""
    if module.running_mean is None:
        raise NotBounded("without running statistics, which ties the rows together")
    scale = (module.running_var + module.eps).rsqrt()
    if module.weight is not None:
        scale = scale * module.weight
    shift = -module.running_mean * scale
    if module.bias is not None:
        shift = shift + module.bias
    shape = (-1, *[1] * (x.value.ndim - 2))
    return build.add(scaling(scale.reshape(shape), shift.reshape(shape)), x)


def _replayed(build: Builder, x: Live, function: Callable[[Tensor], Tensor], one_to_one: bool = False) -> Live:
    """A linear function that has no matrix entry below 0 and acts on every row separately."""
    return build.add(nonnegative(function, x.value.device, one_to_one), x)


def _reshaped(build: Builder, x: Live, function: Callable[[Tensor], Tensor]) -> Live:
    """A call that keeps the order of the numbers of every row: the shape of its output determines the call."""
    shape = tuple(function(x.value).shape)
    if not shape or shape[0] != ROWS:
        raise NotBounded("joining or splitting the rows of the batch")
    return _replayed(build, x, lambda rows: rows.reshape(len(rows), *shape[1:]), one_to_one=True)


def _reshape_call(function: Callable[..., Tensor]) -> Callable[..., Live]:
    """Builder of a function that reshapes."""
    return lambda build, x, *args, **options: _reshaped(build, x, lambda rows: function(rows, *args, **options))


def _moved(build: Builder, x: Live, function: Callable[[Tensor], Tensor]) -> Live:
    """A call that permutes axes and keeps the first axis."""
    rows = torch.arange(ROWS, device=x.value.device).reshape(-1, *[1] * (x.value.ndim - 1)).expand_as(x.value)
    moved = function(rows)
    if not bool((moved == moved[:, *[slice(0, 1)] * (moved.ndim - 1)]).all()) or len(moved) != ROWS:
        raise NotBounded("moving the rows of the batch")
    return _replayed(build, x, function, one_to_one=True)


def _move_call(function: Callable[..., Tensor]) -> Callable[..., Live]:
    """Builder of a function that permutes axes."""
    return lambda build, x, *args, **options: _moved(build, x, lambda rows: function(rows, *args, **options))


def _mean(build: Builder, x: Live, dim: Any = None, keepdim: bool = False) -> Live:
    """A mean over axes other than the first."""
    axes = [dim] if isinstance(dim, int) else list(dim or [])
    axes = [axis % x.value.ndim for axis in axes]
    if not axes or 0 in axes:
        raise NotBounded("over the rows of the batch")
    return _replayed(build, x, lambda rows: rows.mean(dim=axes, keepdim=keepdim))


def _item(build: Builder, x: Any, index: Any) -> Any:
    """A slice that keeps all rows, or an item of a constant such as a shape."""
    if not isinstance(x, Live):
        return x[index]
    places = index if isinstance(index, tuple) else (index,)
    all_rows = places and (places[0] is Ellipsis or places[0] == slice(None))
    plain = all(place is Ellipsis or isinstance(place, int | slice) for place in places)
    if not all_rows or not plain or (places[0] is Ellipsis and len(places) > x.value.ndim):
        raise NotBounded("of rows of the batch, or by anything but slices and numbers")
    return _replayed(build, x, lambda rows: rows[places], one_to_one=True)


def _pad(build: Builder, x: Live, pad: Any, mode: str = "constant", value: float | None = None) -> Live:
    """Padding with zeros."""
    if mode != "constant" or value:
        raise NotBounded("with anything but zeros")
    if len(pad) >= 2 * x.value.ndim:
        raise NotBounded("along the rows of the batch")
    return _replayed(build, x, lambda rows: functional.pad(rows, tuple(pad)), one_to_one=True)


def _avg_pool(build: Builder, x: Live, *args: Any, **options: Any) -> Live:
    """Average pooling."""
    divisor = args[5] if len(args) > 5 else options.get("divisor_override")
    if divisor is not None and divisor < 0:
        raise NotBounded("with a negative divisor")
    return _replayed(build, x, lambda rows: functional.avg_pool2d(rows, *args, **options))


def _avg_pool_module(build: Builder, module: Any, x: Live) -> Live:
    """A `nn.AvgPool2d`."""
    settings = module.kernel_size, module.stride, module.padding, module.ceil_mode, module.count_include_pad
    return _avg_pool(build, x, *settings, module.divisor_override)


def _adaptive_pool(build: Builder, x: Live, output_size: Any) -> Live:
    """Adaptive average pooling."""
    return _replayed(build, x, lambda rows: functional.adaptive_avg_pool2d(rows, output_size))


def _max_pool(
    build: Builder,
    x: Live,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Live:
    """Maximum pooling."""
    if return_indices:
        raise NotBounded("with return_indices")
    size = _pair(kernel_size)
    return build.add(MaxPool(size, _pair(stride or size), _pair(padding), _pair(dilation), ceil_mode), x)


def _max_pool_module(build: Builder, module: Any, x: Live) -> Live:
    """A `nn.MaxPool2d`."""
    settings = module.kernel_size, module.stride, module.padding, module.dilation
    return _max_pool(build, x, *settings, module.ceil_mode, module.return_indices)


def _gelu(build: Builder, x: Live, approximate: str = "none") -> Live:
    """GELU, exact or approximated by tanh."""
    return build.add(GELU_TANH if approximate == "tanh" else GELU, x)


def _dropout(build: Builder, x: Live, p: float = 0.5, training: bool = True, inplace: bool = False) -> Live:
    """Dropout that is off."""
    if training and p:
        raise NotBounded("that stays on in eval mode (pass training=self.training)")
    return x


def _sum(second: float) -> Callable[..., Live]:
    """Builder of x + y or x − y, of two tensors that depend on the input, or of one such tensor and a constant."""

    def build_sum(build: Builder, x: Any, y: Any, *, alpha: float = 1) -> Live:
        if alpha != 1:
            raise NotBounded("with alpha")
        if isinstance(x, Live) and isinstance(y, Live):
            shape = (x.value + y.value).shape
            return build.add(Sum((1.0, second)), _widened(build, x, shape), _widened(build, y, shape))
        if isinstance(x, Live):
            return _scaled(build, x, 1.0, second * _constant(x, y))
        return _scaled(build, y, second, _constant(y, x))

    return build_sum


def _widened(build: Builder, x: Live, shape: torch.Size) -> Live:
    """``x`` repeated along axes of length 1, up to ``shape``."""
    if x.value.shape == shape:
        return x
    if x.value.ndim != len(shape):
        raise NotBounded("of tensors with different numbers of axes")
    return _replayed(build, x, lambda rows: rows.expand(len(rows), *shape[1:]))


def _product(build: Builder, x: Any, y: Any) -> Live:
    """A product with a constant."""
    if isinstance(x, Live) and isinstance(y, Live):
        raise NotBounded("of two tensors that depend on the input")
    live, constant = (x, y) if isinstance(x, Live) else (y, x)
    return _scaled(build, live, _constant(live, constant), None)


def _quotient(build: Builder, x: Any, y: Any) -> Live:
    """A quotient by a constant."""
    if not isinstance(x, Live) or isinstance(y, Live):
        raise NotBounded("by something that depends on the input")
    return _scaled(build, x, 1 / _constant(x, y), None)


def _negative(build: Builder, x: Live) -> Live:
    """−x."""
    return _scaled(build, x, -1.0, None)


def _constant(live: Live, value: Any) -> Tensor:
    """A number or a tensor that broadcasts to one row of ``live``, without the axis of the rows."""
    constant = torch.as_tensor(value, dtype=torch.float64, device=live.value.device)
    while constant.ndim >= live.value.ndim and constant.shape[0] == 1:
        constant = constant.squeeze(0)
    if constant.ndim >= live.value.ndim or (live.value[0] * constant).shape != live.value.shape[1:]:
        raise NotBounded("with a constant that does not fit one row")
    return constant


def _scaled(build: Builder, x: Live, scale: Tensor | float, shift: Tensor | None) -> Live:
    """The affine map scale · x + shift."""
    factor = torch.as_tensor(scale, dtype=torch.float64, device=x.value.device)
    return build.add(scaling(factor, shift), x)


def _size(build: Builder, x: Live, dim: int | None = None) -> Any:
    """The shape, or one length, for the three rows."""
    return x.value.size() if dim is None else x.value.size(dim)


def _attribute(build: Builder, x: Any, name: str) -> Any:
    """An attribute that does not depend on the values."""
    if not isinstance(x, Live) or name not in ("shape", "ndim", "dtype", "device"):
        raise NotBounded(f"of {name!r}")
    return getattr(x.value, name)


def _function_layer(layer: Layer) -> Callable[..., Live]:
    """Builder of a function without settings."""
    return lambda build, x, *_, **__: build.add(layer, x)


def _module_layer(layer: Layer) -> Callable[..., Live]:
    """Builder of a module without settings."""
    return lambda build, module, x: build.add(layer, x)


MODULES: dict[type[nn.Module], Callable[..., Live]] = {
    nn.Linear: lambda build, module, x: _linear(build, x, module.weight, module.bias),
    nn.Conv2d: _convolution_module,
    nn.ReLU: _module_layer(RELU),
    nn.Tanh: _module_layer(TANH),
    nn.GELU: lambda build, module, x: _gelu(build, x, module.approximate),
    nn.AvgPool2d: _avg_pool_module,
    nn.AdaptiveAvgPool2d: lambda build, module, x: _adaptive_pool(build, x, module.output_size),
    nn.MaxPool2d: _max_pool_module,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Flatten: lambda build, module, x: _reshaped(build, x, module),
    nn.Unflatten: lambda build, module, x: _reshaped(build, x, module),
    **{kind: lambda build, module, x: x for kind in (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)},
}

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.relu, functional.relu, "relu"), _function_layer(RELU)),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh"), _function_layer(TANH)),
    functional.gelu: _gelu,
    functional.linear: _linear,
    functional.conv2d: _conv2d,
    **dict.fromkeys((functional.dropout, functional.dropout2d), _dropout),
    functional.avg_pool2d: _avg_pool,
    functional.adaptive_avg_pool2d: _adaptive_pool,
    **dict.fromkeys((functional.max_pool2d, torch.max_pool2d), _max_pool),
    functional.pad: _pad,
    **dict.fromkeys((torch.mean, "mean"), _mean),
    **dict.fromkeys((torch.flatten, "flatten"), _reshape_call(torch.flatten)),
    **dict.fromkeys((torch.reshape, "reshape", "view"), _reshape_call(torch.Tensor.reshape)),
    **dict.fromkeys((torch.squeeze, "squeeze"), _reshape_call(torch.squeeze)),
    **dict.fromkeys((torch.unsqueeze, "unsqueeze"), _reshape_call(torch.unsqueeze)),
    **dict.fromkeys((torch.permute, "permute"), _move_call(torch.Tensor.permute)),
    **dict.fromkeys((torch.transpose, "transpose"), _move_call(torch.transpose)),
    **dict.fromkeys(("contiguous", "clone"), _same),
    operator.getitem: _item,
    **dict.fromkeys((operator.add, torch.add, "add"), _sum(1.0)),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), _sum(-1.0)),
    **dict.fromkeys((operator.mul, torch.mul, "mul"), _product),
    **dict.fromkeys((operator.truediv, torch.div, "div"), _quotient),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), _negative),
    "size": _size,
    getattr: _attribute,
}
