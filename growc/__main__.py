"""`python -m growc` is `growc`."""

import sys

from growc.cli.main import main

sys.exit(main())
