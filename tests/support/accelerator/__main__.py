"""`python -m support.accelerator train --device sim ...`: gpt on two simulated devices."""

import sys

from gpt_cli.__main__ import run
from support.accelerator.simulation import Accelerator

if __name__ == "__main__":
    Accelerator(2).begin()
    sys.exit(run(sys.argv[1:]))
