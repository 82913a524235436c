"""``python -m legato.compat.elasticdl.site`` prints where ElasticDL's packages are, for ``PYTHONPATH``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.stdout.write(f"{Path(__file__).parent}\n")
