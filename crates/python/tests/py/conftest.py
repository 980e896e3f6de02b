"""As the installed wheel's entry point would do it."""

pytest_plugins = ["towpath.pytest_plugin", "pytester"]
