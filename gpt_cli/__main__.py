"""`python -m gpt_cli` is `gpt`."""

import sys

from gpt_cli.cli.app import main

sys.exit(main())
