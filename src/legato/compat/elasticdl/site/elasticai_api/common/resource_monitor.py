"""Names that programs import. Legato itself measures what its processes use."""


class ResourceMonitor:
    """Does nothing."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class GlobalResourceMonitor:
    """Does nothing."""

    RESOURCE_MONITOR = ResourceMonitor()
