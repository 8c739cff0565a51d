"""The program under test on a terminal."""

import codecs
import os
import pty
import re
import select
import termios
import time

from program import OUTRIDER, environment

PATIENCE = 120  # seconds: what is not there by then does not come


class Terminal:
    """The program on a terminal of its own. What it shows is collected until a wanted text comes. `changes` are of its
    environment."""

    def __init__(self, *arguments, **changes):
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.execve(OUTRIDER, [OUTRIDER, *arguments], environment(**{"TERM": "xterm", "LANG": "C.UTF-8", **changes}))
        self.seen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def wait_for(self, pattern):
        """Everything up to and with the pattern; fails if the program ends before, or is silent for long."""
        while not (found := re.search(pattern, self.seen, re.S)):
            if not select.select([self.file], [], [], PATIENCE)[0]:
                raise AssertionError(f"{pattern!r} did not come after {self.seen!r}")
            try:
                self.seen += self._decoder.decode(os.read(self.file, 4096))
            except OSError as error:
                raise AssertionError(f"{pattern!r} did not come before the end of {self.seen!r}") from error
        text, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return text

    def press(self, keys):
        os.write(self.file, keys.encode("utf-8", "surrogateescape"))

    def type(self, keys):
        """Once the line editor has the keyboard; before that the terminal itself would show what is pressed."""
        while termios.tcgetattr(self.file)[3] & termios.ICANON:
            time.sleep(0.01)
        self.press(keys)

    def end(self):
        """Waits for the program's end; its exit status."""
        try:
            while os.read(self.file, 4096):
                pass
        except OSError:
            pass
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
