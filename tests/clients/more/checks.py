"""What the Python cells share. Every cell, in whichever language, is started with the bootstrap
address and the number of records, and prints lines of words divided by tabs:

  ok CHECK | FAIL CHECK DETAIL | none CHECK WHY | moved RECORDS | version TEXT

`none` says that the client has no such thing. Whatever else is printed is passed over.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import lib  # noqa: E402


class Checks:
    def __init__(self):
        self.failed = 0

    def say(self, *words):
        flat = [str(word).replace("\n", " ").replace("\t", " ") for word in words]
        print("\t".join(flat), flush=True)

    def check(self, what, holds, detail=""):
        self.failed += not holds
        self.say(*(("ok", what) if holds else ("FAIL", what, lib.shorten(detail))))
        return holds

    def equal(self, what, got, wanted):
        return self.check(what, got == wanted, f"got {got}, wanted {wanted}")

    def attempt(self, what, call):
        """Runs a part; what it raises is the part's failure, and the next part is run."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the failure is the report
            self.check(what, False, f"{type(error).__name__}: {error}")

    def finish(self):
        return 1 if self.failed else 0


def arguments():
    """Bootstrap address and number of records."""
    return sys.argv[1], int(sys.argv[2])
