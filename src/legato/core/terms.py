"""Terms: numbers that order the drivers of one job, so that an earlier driver can never lead again. Pure.

Each driver takes a term above all earlier ones, and writes it to the job's journal before it sends anything. Workers
and agents refuse a driver whose term is lower than one that they have seen.
"""

from __future__ import annotations

from typing import Final

TERMS_PER_LEASE: Final = 2**20
"""How many drivers of one job the servers of one lease can start. No job needs as many."""


def first_term(fence: int) -> int:
    """Return a term below which all drivers of earlier leases are.

    Args:
        fence: the fencing number of the server's lease, which grows with each takeover by another server.
    """
    return fence * TERMS_PER_LEASE


def is_of_later_lease(term: int, given: int) -> bool:
    """Return whether a driver of a later lease has had a term.

    Args:
        term: that some driver of the job has had.
        given: the term in the order of a server; 0: there is none, and no lease is later.

    >>> is_of_later_lease(first_term(3) + 1, first_term(2)), is_of_later_lease(first_term(2) + 7, first_term(2))
    (True, False)
    """
    return given > 0 and term // TERMS_PER_LEASE > given // TERMS_PER_LEASE


def next_term(known: int, given: int) -> int:
    """Return the term of a driver that begins or adopts a job.

    Args:
        known: the term in the job's journal; 0: there is none.
        given: the term in the order of a server; 0: there is none.

    >>> next_term(3, 0), next_term(3, first_term(2)) > first_term(2)
    (4, True)
    """
    return max(known, given) + 1
