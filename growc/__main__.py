"""`python -m growc` is `growc`."""

import sys

from growc.cli import main

sys.exit(main())
