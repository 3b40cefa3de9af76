"""The type checker of the tests: tensors against their jaxtyping annotations, and nothing else.

Other arguments are left to mypy, and wrong ones to the library's own errors, which are tested too.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import AbstractArray


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """What jaxtyping's import hook wraps every function and class of randfield in."""
    if not inspect.isfunction(function):
        return function
    signature = inspect.signature(function)

    @functools.cache  # on the first call: an annotation may name what is defined further down
    def shaped() -> dict[str, Any]:
        return {name: hint for name, hint in typing.get_type_hints(function).items() if _is_shaped(hint)}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        hints = shaped()
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for each in value if several else [value]:
                _check(function, name, each, hints.get(name))
        result = function(*args, **kwargs)
        _check(function, "return", result, hints.get("return"))
        return result

    return wrapper


def _is_shaped(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(_is_shaped, typing.get_args(hint)))


def _check(function: Callable[..., Any], name: str, value: Any, hint: Any) -> None:
    if hint is None or not _is_shaped(hint):
        return
    if typing.get_origin(hint) is tuple:
        for part, part_hint in zip(value, typing.get_args(hint), strict=True):
            _check(function, name, part, part_hint)
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is not None:
            _check(function, name, value, next(h for h in typing.get_args(hint) if h is not types.NoneType))
    elif not isinstance(value, hint):
        shape = f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise TypeError(f"{function.__qualname__}: {name} should be {hint.__name__}, got {shape}")
