"""The command line: python -m annotated train | translate | evaluate."""

import os
import sys

# Before torch loads: threads that wait in a loop for their next work crawl where anything else is running.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from annotated.workbench.command_line import main

if __name__ == "__main__":
    sys.exit(main())
