"""What every connector must keep to, as checks that its author runs on it.

    def test_my_target(spark, tmp_path):
        check_target(lambda: MyPlace(tmp_path), spark)

    def test_my_origin(tmp_path):
        check_origin(lambda folder: OriginCase(my_source(folder), rows=[...], refused=1), tmp_path)

A target is crashed at every point that it names with `spark.failpoints.passing`, an origin between
any two blocks of rows. `TARGET_CHECKS` and `ORIGIN_CHECKS` are the same checks one by one, for
`pytest.mark.parametrize`.
"""

from millstream.testing.connectors.origins import ORIGIN_CHECKS, OriginCase, check_origin
from millstream.testing.connectors.targets import TARGET_CHECKS, TargetPlace, check_target

__all__ = [
    "ORIGIN_CHECKS",
    "TARGET_CHECKS",
    "OriginCase",
    "TargetPlace",
    "check_origin",
    "check_target",
]
