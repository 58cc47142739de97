"""``python -m elr`` is the command ``elr``."""

import sys

from elr.cli.main import main

sys.exit(main())
