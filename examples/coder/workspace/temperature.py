"""Temperatures."""


def to_celsius(fahrenheit: float) -> float:
    """Turn degrees Fahrenheit into degrees Celsius."""
    return fahrenheit - 32 * 5 / 9
