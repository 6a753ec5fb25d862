"""`python -m dryfit` is the `dryfit` command."""

import sys

from dryfit.cli import main

sys.exit(main())
