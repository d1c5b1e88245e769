"""From a torch module to a `Network`: torch.fx lists the calls, and tables map every call to a layer."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.parametrize import is_parametrized

from surefoot.errors import BadInput
from surefoot.margins.builder import ROWS, Builder, Live, NotBounded
from surefoot.margins.layers import FUNCTIONS, MODULES
from surefoot.margins.network import Network

__all__ = ["network_of"]

_REMEDY = "method='pgd' takes any model, for an estimate from above"
# Largest difference between the layers and the model, relative to the logits: rounding of float64 in a deep network.
_AGREEMENT = 1e-7


def network_of(model: nn.Module, example: Tensor) -> Network:
    """Convert a model in eval mode to a network of known layers.

    Args:
        model: a torch module; a copy is traced, and the model is not modified.
        example: (1, *shape) one input.

    Returns:
        The network, in float64.

    Raises:
        BadInput: when no bound is known for a layer, which the error names; or when the model takes other inputs, has
            forward hooks, or does something that tracing does not see.

    Example:
        >>> network = network_of(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)), torch.zeros(1, 2))
        >>> len(network.nodes), network.classes
        (4, 3)
    """
    copied = _copy(model)
    spread = torch.linspace(-0.01, 0.01, ROWS, dtype=torch.float64, device=example.device)
    rows = example.double() + spread.reshape(-1, *[1] * (example.ndim - 1))
    try:
        expected = copied(rows.clone())
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        lengths = ", ".join(map(str, example.shape[1:]))
        raise BadInput(f"model must take inputs of shape (n, {lengths}) in float64; {_text_of(error)}") from error
    if not isinstance(expected, Tensor) or expected.ndim != 2 or len(expected) != ROWS or expected.shape[1] < 2:
        shape = tuple(expected.shape) if isinstance(expected, Tensor) else type(expected).__name__
        raise BadInput(f"model must give logits of shape (n, k), two classes at least; got {shape} for n = {ROWS}")
    last = _follow(copied, _trace(copied), Builder(rows))
    # This check catches what tracing cannot see, such as a layer that overwrites an input that is used again.
    slack = _AGREEMENT * max(float(expected.abs().max()), float(last.value.abs().max()))
    if bool(torch.isfinite(expected).all()) and not float((last.value - expected).abs().max()) <= slack:
        raise BadInput(
            "model must be the layers that its forward lists, with nothing changed in place or at random; "
            f"they give other logits than the model does; {_REMEDY}"
        )
    return last.builder.network(last)


def _copy(model: nn.Module) -> nn.Module:
    """A float64 copy in eval mode without gradients; hooks are refused, since hooks may change outputs."""
    for path, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise BadInput(
                f"model must have no forward hooks for a certified bound; {_named(path, module)} has one: remove it"
            )
    try:
        return copy.deepcopy(model).double().eval().requires_grad_(False)
    except (RuntimeError, TypeError) as error:
        raise BadInput(f"model must be one that copy.deepcopy can copy; {_text_of(error)}") from error


def _trace(model: nn.Module) -> fx.Graph:
    """The graph of calls; if tracing fails, the error names the first layer without bounds, or the module it was in."""
    tracer = _Tracer()
    try:
        return tracer.trace(model)
    except Exception as error:  # the code of a model may raise anything when it is given a proxy of a tensor
        for path, module in model.named_modules():
            if path and not list(module.children()) and type(module) not in MODULES and not is_parametrized(module):
                raise BadInput(_no_bound(f"the layer {_named(path, module)}")) from error
        path = tracer.paths[-1] if tracer.paths else ""
        raise BadInput(
            f"model must have a forward that always makes the same calls; {_named(path, model.get_submodule(path))} "
            f"could not be followed ({_text_of(error)}); {_REMEDY}"
        ) from error


class _Tracer(fx.Tracer):
    """A tracer that records the path of the module being traced."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Treat layers with bounds as leaves, also layers with a parametrised weight."""
        return type(m) in MODULES or is_parametrized(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record the path of the module; the path remains recorded if the call fails."""
        self.paths.append(self.path_of_module(m))
        output = super().call_module(m, forward, args, kwargs)
        self.paths.pop()
        return output


def _follow(model: nn.Module, graph: fx.Graph, builder: Builder) -> Live:
    """Add the layers of all calls, and return the logits."""
    known: dict[fx.Node, Any] = {}  # the output of every call: a tensor that depends on the input, or a constant
    for call in graph.nodes:
        arguments = fx.node.map_arg(call.args, known.__getitem__)
        options = fx.node.map_arg(call.kwargs, known.__getitem__)
        if call.op == "placeholder":
            known[call] = _argument(call, builder, first=not known)
        elif call.op == "get_attr":
            known[call] = operator.attrgetter(str(call.target))(model)
        elif call.op == "call_module":
            known[call] = _module(model, str(call.target), builder, arguments, options)
        elif call.op == "output":
            if not isinstance(arguments[0], Live):
                raise BadInput("model must give logits that depend on its input")
            return arguments[0]
        else:
            known[call] = _function(model, call, builder, arguments, options)
    raise BadInput("model must return its logits")


def _argument(call: fx.Node, builder: Builder, first: bool) -> Any:
    """The input for the first argument of forward, the default for the others."""
    if first:
        return builder.input
    if call.args:
        return call.args[0]  # the default
    raise BadInput(f"model must take one input; its forward also takes {call.target!r}; {_REMEDY}")


def _module(model: nn.Module, path: str, builder: Builder, arguments: Any, options: Any) -> Live:
    """Add the layer of a module."""
    module = model.get_submodule(path)
    build = MODULES.get(type(module))
    if build is None and is_parametrized(module):  # torch derives a new class; `weight` is the parametrised weight
        build = next((known for kind, known in MODULES.items() if isinstance(module, kind)), None)
    if build is None:
        raise BadInput(_no_bound(f"the layer {_named(path, module)}"))
    given = [*arguments, *options.values()]
    if len(given) != 1 or not isinstance(given[0], Live):
        raise BadInput(f"the layer {_named(path, module)} must be given one tensor that depends on the input")
    try:
        return build(builder, module, given[0])
    except NotBounded as error:
        raise BadInput(_no_bound(f"the layer {_named(path, module)} {error}")) from error


def _function(model: nn.Module, call: fx.Node, builder: Builder, arguments: Any, options: Any) -> Any:
    """Add the layer of a function, or evaluate a function of constants."""
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", str(call.target))
    if not any(isinstance(value, Live) for value in _flat((arguments, options))):
        if callable(call.target):
            return call.target(*arguments, **options)
        return getattr(arguments[0], name)(*arguments[1:], **options)
    stack = call.meta.get("nn_module_stack") or {}
    path = next((path for path, _ in reversed(stack.values())), "")
    caller = _named(path, model.get_submodule(path))
    build = FUNCTIONS.get(call.target)
    if build is None:
        raise BadInput(_no_bound(f"{name}, called by {caller}"))
    try:
        return build(builder, *arguments, **options)
    except NotBounded as error:
        raise BadInput(_no_bound(f"{name} {error}, called by {caller}")) from error
    except TypeError as error:  # an argument that the builder does not know
        raise BadInput(_no_bound(f"{name} as it is called by {caller} ({_text_of(error)})")) from error


def _named(path: str, module: nn.Module) -> str:
    """The path and type of a module."""
    return f"{path} ({type(module).__name__})" if path else f"the model ({type(module).__name__})"


def _no_bound(what: str) -> str:
    """The error for a call without a known bound."""
    return f"no certified bound is known for {what}; {_REMEDY}"


def _text_of(error: Exception) -> str:
    """The text of an error on one line."""
    return " ".join(str(error).split())


def _flat(values: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dictionaries."""
    if isinstance(values, dict):
        return [leaf for value in values.values() for leaf in _flat(value)]
    if isinstance(values, tuple | list):
        return [leaf for value in values for leaf in _flat(value)]
    return [values]
