"""A module that is sent with a function that uses it."""


def double(number: int) -> int:
    return 2 * number
