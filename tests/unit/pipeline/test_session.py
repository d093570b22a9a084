from headrace.pipeline.session import session_conf
from headrace.pipeline.settings import SparkSettings

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def test_spark_is_quiet_without_announcing_it() -> None:
    conf = session_conf(SparkSettings(class_archive=False))
    assert "log4j2.properties" in conf[JAVA_OPTIONS]
    assert "spark.log.level" not in conf, "Spark would say on stderr that it was set"


def test_the_jvm_compiles_late_unless_a_user_has_options_of_their_own() -> None:
    assert "Tier4" in session_conf(SparkSettings(class_archive=False))[JAVA_OPTIONS]
    assert "Tier4" not in session_conf(SparkSettings(class_archive=False, conf={JAVA_OPTIONS: ""}))[JAVA_OPTIONS]


def test_spark_is_quiet_with_a_users_own_java_options() -> None:
    conf = session_conf(SparkSettings(class_archive=False, conf={JAVA_OPTIONS: "-Xss4m"}))
    assert (conf[JAVA_OPTIONS], conf["spark.log.level"]) == ("-Xss4m", "ERROR")
    assert (
        session_conf(SparkSettings(class_archive=False, conf={**conf, "spark.log.level": "INFO"}))["spark.log.level"]
        == "INFO"
    )
