"""As the installed wheel's entry point would do it, and what runs pytest in a test."""

pytest_plugins = ["towpath.pytest_plugin", "pytester"]
