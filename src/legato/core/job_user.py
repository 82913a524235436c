"""The system user of a job's processes. Data only; changes no process."""

from __future__ import annotations

import msgspec


class JobUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the system other than the one that runs the driver.

    Args:
        uid: of the user.
        gid: of its first group.
        groups: all of its groups, by number.
        name: user name that programs see; the system need not know it.
        home: the user's home directory.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str
    home: str

    def variables(self) -> dict[str, str]:
        """Return the environment variables by which programs find their user.

        >>> JobUser(uid=7, gid=7, name="ann", home="/homes/ann").variables()
        {'HOME': '/homes/ann', 'USER': 'ann', 'LOGNAME': 'ann'}
        """
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}
