"""Commands on the platform. Each module is loaded when one of its commands is called."""
