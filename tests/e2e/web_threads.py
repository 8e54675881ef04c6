"""web_threads.py REEF SCHEMA - what web.py asks of HTTP, of a program that is
built with the thread sanitizer: its processes report no race."""

import glob
import os
import subprocess
import sys
import tempfile

# Those by which all of its threads meet: who serves, who asks the broker, who
# carries out orders.
CHECKS = ("orders", "watchers", "stays", "slowly", "api")


def main():
    web = os.path.join(os.path.dirname(os.path.abspath(__file__)), "web.py")
    with tempfile.TemporaryDirectory() as folder:
        # What a process that is ended says goes nowhere else.
        environment = dict(os.environ, TSAN_OPTIONS="log_path=%s/report" % folder)
        status = subprocess.run([sys.executable, web, *sys.argv[1:3], *CHECKS],
                                env=environment, check=False).returncode
        for path in glob.glob(folder + "/report*"):
            with open(path, encoding="utf-8", errors="replace") as stream:
                print(stream.read())
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
