"""`Value`: a number with a record of how it was measured."""

from __future__ import annotations

from typing import Any

__all__ = ["Value"]


class Value(float):
    """A float with facts: number of examples, bins, norm, and whatever else the number depends on.

    Facts are also attributes: ``v.n`` is ``v.facts["n"]``. Arithmetic returns plain floats.

    Args:
        value: the number.
        **facts: what the number depends on, by name.

    Attributes:
        facts: the facts by name.

    Example:
        >>> v = Value(0.25, n=4, bins=15, norm=1)
        >>> v, v + 0.5, v.facts["bins"]
        (Value(0.25, n=4, bins=15, norm=1), 0.75, 15)
    """

    facts: dict[str, Any]

    def __new__(cls, value: float, **facts: Any) -> Value:
        """Make the float and attach its facts."""
        self = super().__new__(cls, value)
        self.facts = facts
        return self

    def __getattr__(self, name: str) -> Any:
        # Python calls this method only when the usual look-up fails; `facts` itself is missing while unpickling.
        if name != "facts" and name in self.facts:
            return self.facts[name]
        raise AttributeError(f"this value has no fact {name!r}; it has {', '.join(self.__dict__.get('facts', {}))}")

    def __repr__(self) -> str:
        return f"Value({', '.join([float.__repr__(self), *(f'{name}={fact!r}' for name, fact in self.facts.items())])})"

    def __str__(self) -> str:
        return float.__repr__(self)
