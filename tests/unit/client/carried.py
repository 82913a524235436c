"""What a function that is sent elsewhere takes along."""


def double(number: int) -> int:
    return 2 * number
