"""What tests fetch and build once: the jars of Kafka and for S3, the S3 server.

python -m support.fetched
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from millstream.testing.kafka import VERSION, kafka_jars
from support.s3 import s3_jars, s3_program


def main() -> None:
    """Fetch and build; the test that needs what cannot be had says why."""
    with ThreadPoolExecutor() as pool:
        pool.submit(s3_program)
        pool.submit(kafka_jars, VERSION)
        pool.submit(s3_jars)


if __name__ == "__main__":
    main()
