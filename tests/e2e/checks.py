"""How the scripts of this folder run their checks, and say what failed.

The reasons stand at the end, after what the processes printed: whoever sees
only the tail of a log sees them."""

import contextlib
import os
import sys
import tempfile
import time
import traceback

FRAMES_MAX = 6  # lines of a failure's way that are shown
TEXT_MAX = 1200  # bytes of what it says
TEMPORARY_MAX = 40  # bytes of TMPDIR that leave room for a socket's path

if len(tempfile.gettempdir()) > TEMPORARY_MAX:
    tempfile.tempdir = os.environ["TMPDIR"] = "/tmp"


class Skipped(Exception):
    """A check cannot run here; why."""


def shorten(text):
    """Both ends of it, in few lines."""
    text = text.strip().replace("\n", "\\n")
    if len(text) <= TEXT_MAX:
        return text
    half = TEXT_MAX // 2
    return text[:half] + " ... " + text[-half:]


def reason(name, error):
    """Why a check failed, and the lines that led there: its own first."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if len(frames) > FRAMES_MAX:
        frames = frames[:1] + frames[1 - FRAMES_MAX:]
    return "\n".join(
        ["FAILED %s: %s: %s" % (name, type(error).__name__,
                                shorten(str(error)))] +
        ["  %s:%d %s: %s" % (os.path.basename(frame.filename), frame.lineno,
                             frame.name, frame.line) for frame in frames])


def print_processes(place):
    for process in getattr(place, "processes", [])[-20:]:
        print("%s: %s %s" % (process.name, process.out[-300:],
                             process.error[-2000:]))


def run_each(checks, make_place=contextlib.nullcontext):
    """Run checks, (name, function) each, in a place of its own that each is
    given. The status."""
    passed, skipped, failures = 0, 0, []
    # Who is ended because one hangs has still said which went before it.
    sys.stdout.reconfigure(line_buffering=True)
    for name, check in checks:
        began = time.monotonic()
        with make_place() as place:
            try:
                check(place)
                print("ok %s, %.1f s" % (name, time.monotonic() - began))
                passed += 1
            except Skipped as why:
                print("skipped %s: %s" % (name, why))
                skipped += 1
            except Exception as error:  # pylint: disable=broad-except
                failures.append(reason(name, error))
                print(failures[-1])
                print_processes(place)
    if failures:
        print("\n".join(["", "What failed:"] + failures))
    print("%d passed, %d failed, %d skipped" % (
        passed, len(failures), skipped))
    return 1 if failures else 0


def run_checks(names, make_place, wanted=()):
    """Run the check_ functions of a module; those whose name has one of the
    wanted words, if there are any. The status."""
    return run_each([
        (name, check) for name, check in sorted(names.items())
        if name.startswith("check_") and (
            not wanted or any(word in name for word in wanted))], make_place)
