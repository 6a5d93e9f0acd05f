# SPDX-License-Identifier: GPL-2.0-only
"""`python -m xsmmu`."""

from xsmmu.cli import main

if __name__ == "__main__":
    main()
