from headrace.cli.greeting import cluster_greeting, greeting

DOORS = {"kafka": ("127.0.0.1", 9092), "admin": ("127.0.0.1", 9642)}


def test_a_person_is_told_where_the_console_is_and_what_to_try() -> None:
    text = greeting(DOORS, is_colored=False)
    assert "http://127.0.0.1:9642/" in text
    assert "headrace topic create orders" in text
    assert "--bootstrap" not in text
    assert "\x1b" not in text


def test_other_ports_are_part_of_the_commands_to_try() -> None:
    text = greeting({**DOORS, "kafka": ("::1", 19092)}, is_colored=True)
    assert "--bootstrap [::1]:19092" in text
    assert "\x1b[1m" in text


def test_without_a_console_there_is_nothing_to_say() -> None:
    assert greeting({"kafka": ("127.0.0.1", 9092)}, is_colored=False) == ""


def test_a_cluster_says_where_each_broker_is_and_its_console() -> None:
    brokers = {
        "node-1": {"kafka": "127.0.0.1:9092", "admin": "127.0.0.1:9642"},
        "node-2": {"kafka": "127.0.0.1:9192", "admin": "127.0.0.1:9742"},
    }
    text = cluster_greeting(brokers)
    assert "  node-2  127.0.0.1:9192  http://127.0.0.1:9742/\n" in text
    assert "headrace topic create orders --partitions 6\n" in text
    elsewhere = cluster_greeting({"node-1": {"kafka": "127.0.0.1:40001"}})
    assert "  node-1  127.0.0.1:40001  -\n" in elsewhere
    assert "headrace cluster describe --bootstrap 127.0.0.1:40001\n" in elsewhere
