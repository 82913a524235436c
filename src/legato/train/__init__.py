"""Code that runs in the user's process. The only package with torch; never loads the platform."""
