"""The order of password hashes: a log-in waits only for a few hashes of other attempts."""

from __future__ import annotations

import asyncio

from legato.server.login_queue import LoginQueue


def hash_order(attempts: list[tuple[str, bool]], most: int = 2) -> list[int]:
    """Return the attempts in the order in which their hashes begin; all come before the first hash ends."""

    async def run() -> list[int]:
        queue, order, all_here = LoginQueue(most), list[int](), asyncio.Event()

        async def attempt(number: int) -> None:
            source, is_known = attempts[number]
            async with queue.turn(source, is_known=is_known):
                order.append(number)
                await all_here.wait()

        tasks = []
        for number in range(len(attempts)):
            tasks.append(asyncio.create_task(attempt(number)))
            await asyncio.sleep(0)
        all_here.set()
        await asyncio.gather(*tasks)
        return order

    return asyncio.run(run())


def test_a_known_device_waits_for_no_guess_that_has_not_begun() -> None:
    order = hash_order([(f"10.0.0.{number % 6}", False) for number in range(60)] + [("10.0.0.1", True)])
    assert order.index(60) == 2, "behind the two hashes that were being computed"


def test_a_log_in_from_another_address_waits_for_one_hash_of_each_address_that_guesses() -> None:
    guesses = [(f"10.0.0.{number % 3}", False) for number in range(60)]
    order = hash_order([*guesses, ("10.0.9.9", False)])
    assert order.index(60) <= 2 + 3
    assert sorted(order) == list(range(61)), "all get their turn"


def test_users_behind_one_address_do_not_wait_for_as_long_as_others_guess() -> None:
    """Each guesser sends its next password when it has the answer to the last one."""

    async def run() -> int:
        queue, num_guesses = LoginQueue(2), 0

        async def guess(source: str) -> None:
            nonlocal num_guesses
            while True:
                async with queue.turn(source):
                    num_guesses += 1
                    await asyncio.sleep(0)

        async def log_in() -> None:
            async with queue.turn("10.0.9.9"):
                await asyncio.sleep(0)

        guessers = [asyncio.create_task(guess(f"10.0.0.{number}")) for number in range(6)]
        for _ in range(50):
            await asyncio.sleep(0)
        begun = num_guesses
        async with asyncio.timeout(10):
            await asyncio.gather(*(log_in() for _ in range(4)))
        for guesser in guessers:
            guesser.cancel()
        await asyncio.gather(*guessers, return_exceptions=True)
        return num_guesses - begun

    # One hash of each guesser for each log-in, and those that were under way.
    assert asyncio.run(run()) <= 4 * 6 + 6


def test_no_address_is_remembered_when_no_attempt_waits() -> None:
    async def run() -> None:
        queue = LoginQueue(2)

        async def attempt(source: str) -> None:
            async with queue.turn(source):
                await asyncio.sleep(0)

        await asyncio.gather(*(attempt(f"10.0.{number}.1") for number in range(3000)))
        assert not queue._next_round and not queue._waiting

    asyncio.run(run())


def test_a_client_that_goes_away_leaves_the_turn_to_the_next() -> None:
    async def run() -> None:
        queue, order = LoginQueue(1), list[str]()

        async def attempt(name: str, ends: asyncio.Event) -> None:
            async with queue.turn(name):
                order.append(name)
                await ends.wait()

        first, last = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(attempt(name, first if name == "a" else last)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()  # while it waits
        await asyncio.sleep(0)
        first.set()
        await tasks[0]
        tasks[2].cancel()  # when it has just got the turn
        last.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order[0] == "a" and order[-1] == "d"
        async with queue.turn("e"):
            pass

    asyncio.run(run())
