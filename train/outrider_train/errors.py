"""Errors that a user can mend."""


class InputError(Exception):
    """One line: where, what was found, what was expected."""


class Interrupted(Exception):
    """The user or the system asked the run to end; its checkpoint is written."""
