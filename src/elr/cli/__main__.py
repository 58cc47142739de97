"""``python -m elr.cli``."""

import sys

from elr.cli.main import main

sys.exit(main())
